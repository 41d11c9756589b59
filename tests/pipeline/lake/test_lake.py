"""A lake: what its table says, and the files that its writer makes."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from pgrouse.errors import ConfigError
from pyspark_pgrouse.errors import LakeUnwritable
from pyspark_pgrouse.lake import lake as lakes
from pyspark_pgrouse.lake import writer as lake_writer
from pyspark_pgrouse.lake.columns import ColumnChoice
from pyspark_pgrouse.lake.data_file import DataFile, folder
from pyspark_pgrouse.lake.directory import Directory
from pyspark_pgrouse.lake.lake import Lake, LakeInfo
from pyspark_pgrouse.lake.maintenance import erase, optimize
from pyspark_pgrouse.lake.writer import LakeWriter
from pyspark_pgrouse.read.position import Position
from tests.pipeline.lakes import data_files

DAY = date(2027, 1, 31)
NOON = datetime(2027, 1, 31, 12, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("topic", pa.string()),
        ("payload", pa.string()),
        ("key", pa.string()),
        ("archived_at", pa.timestamp("us", "UTC")),
        ("date", pa.date32()),
    ]
)
INFO = LakeInfo("default", "77", ("a", "b"), NOON, ColumnChoice((), ("body",), ("key",)))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.make(Directory.at(str(tmp_path / "lake")), INFO, SCHEMA)


def at(number: int) -> Position:
    return Position("77", str(number), number)


def some_rows(topics: list[str], days: list[date] | None = None, payload: str = "{}", **columns: Any) -> pa.RecordBatch:
    count = len(topics)
    values = {
        "id": list(range(count)),
        "topic": topics,
        "payload": [payload] * count,
        "key": ["k"] * count,
        "archived_at": [NOON] * count,
        "date": days or [DAY] * count,
    }
    return pa.RecordBatch.from_pydict(values | columns, SCHEMA)


def written(directory: Directory, *batches: pa.RecordBatch) -> list[DataFile]:
    writer = LakeWriter(directory, "part", SCHEMA)
    with writer:
        for batch in batches:
            writer.write(batch)
    return writer.files


def committed(lake: Lake, number: int, *batches: pa.RecordBatch) -> bool:
    return lake.commit(written(lake.directory, *batches), SCHEMA, at(number - 1), at(number))


def read(lake: Lake) -> list[tuple[date, str, int]]:
    rows = DeltaTable(lake.directory.url).to_pyarrow_table(columns=["date", "topic", "id"]).to_pylist()
    return sorted((row["date"], row["topic"], row["id"]) for row in rows)


# Commits


def test_a_lake_says_what_it_was_made_for_and_up_to_where_it_is_complete(lake: Lake) -> None:
    committed(lake, 1, some_rows(["t"]))
    committed(lake, 2, some_rows(["t"]))

    again = Lake.open(lake.directory.url)

    assert (again.info, again.id, again.position) == (INFO, lake.id, at(2))
    assert (again.schema, again.table.version()) == (SCHEMA, 2)


def test_rows_are_committed_once(lake: Lake) -> None:
    other = Lake.open(lake.directory.url)
    assert committed(lake, 1, some_rows(["t"])) is True

    assert committed(other, 1, some_rows(["t"])) is False
    assert committed(other, 1, some_rows(["t"])) is False

    assert read(lake) == [(DAY, "t", 0)]
    assert other.position == at(1)


def test_a_commit_goes_on_beside_those_of_others(lake: Lake) -> None:
    other = DeltaTable(lake.directory.url)
    other.alter.set_table_properties({"delta.logRetentionDuration": "interval 3 days"})

    assert committed(lake, 1, some_rows(["t"])) is True


def test_a_batch_without_rows_of_the_lake_moves_its_position(lake: Lake) -> None:
    assert lake.commit([], SCHEMA, at(0), at(5)) is True

    assert Lake.open(lake.directory.url).position == at(5)


def test_the_position_outlives_the_commits_that_said_it(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(1, lakes.CHECKPOINT_INTERVAL + 2):
        committed(lake, number, some_rows(["t"]))
    log = Path(lake.directory.url, "_delta_log")
    (checkpoint,) = log.glob("*.checkpoint.parquet")
    for commit in log.glob("*.json"):
        if commit.name[:20] <= checkpoint.name[:20]:
            commit.unlink()

    again = Lake.open(lake.directory.url)

    assert again.position == at(lakes.CHECKPOINT_INTERVAL + 1)
    assert len(read(again)) == lakes.CHECKPOINT_INTERVAL + 1


def test_files_are_selected_by_day_and_topic(lake: Lake) -> None:
    midnight = datetime(2027, 2, 1, tzinfo=UTC)
    committed(lake, 1, some_rows(["a", "b", "x:y"], [DAY, DAY + timedelta(days=1), DAY]))

    def chosen(**of: Any) -> list[str]:
        return [path.split("topic=")[1].split("/")[0] for path in lake.files(**of)]

    assert chosen(since=midnight) == ["b"]
    assert chosen(until=midnight) == ["a", "x%3Ay"]
    assert chosen(since=NOON, until=midnight + timedelta(microseconds=1)) == ["a", "x%3Ay", "b"]
    assert chosen(topics=["x:y", "it's"]) == ["x%3Ay"]
    assert all(Path(path).is_file() for path in lake.files())


def test_a_column_that_a_file_lacks_is_null(lake: Lake) -> None:
    committed(lake, 1, some_rows(["t"]))

    lake.commit([], SCHEMA.append(pa.field("new", pa.bool_())), at(1), at(2))

    assert DeltaTable(lake.directory.url).to_pyarrow_table().column("new").to_pylist() == [None]
    assert Lake.open(lake.directory.url).schema.names == [*SCHEMA.names, "new"]


# The directory


@pytest.mark.parametrize("url", ["nowhere", "file:///nowhere/at/all"])
def test_a_missing_lake_is_not_opened(url: str) -> None:
    with pytest.raises(ConfigError, match=r"there is no lake in .*nowhere"):
        Lake.open(url)


def test_an_unknown_scheme_is_named() -> None:
    with pytest.raises(ConfigError, match="Unknown scheme: nosuch"):
        Lake.open("nosuch://bucket/lake")


def test_a_delta_table_of_others_is_no_lake(tmp_path: Path) -> None:
    DeltaTable.create(str(tmp_path), schema=pa.schema([("id", pa.int64())]))

    with pytest.raises(ConfigError, match="was not made by an export"):
        Lake.open(str(tmp_path))


def test_a_lake_whose_columns_another_engine_has_mapped_is_refused(tmp_path: Path) -> None:
    properties = INFO.as_properties() | {"delta.columnMapping.mode": "name"}
    DeltaTable.create(str(tmp_path), schema=SCHEMA, configuration=properties, raise_if_key_not_exists=False)

    with pytest.raises(ConfigError, match=r"delta\.columnMapping\.mode"):
        Lake.open(str(tmp_path))


def test_a_topic_whose_name_no_file_system_accepts_has_its_own_directory() -> None:
    assert folder({"date": "2027-01-31", "topic": "a:b"}) == "date=2027-01-31/topic=a%3Ab"

    long = [folder({"date": "2027-01-31", "topic": ":" * 199 + end}) for end in "xy"]
    assert len(set(long)) == 2
    assert all(len(part.encode()) <= 255 for path in long for part in path.split("/"))


# The writer


def test_rows_are_split_by_day_and_topic_and_none_is_lost(lake: Lake) -> None:
    days = [DAY, DAY + timedelta(days=1)]
    batch = some_rows(["a", "b", "a:b"] * 4, [days[n % 2] for n in range(12)])

    files = written(lake.directory, batch, some_rows([]), batch)
    lake.commit(files, SCHEMA, at(0), at(1))

    assert sorted((f.partition["date"], f.partition["topic"], f.rows) for f in files) == [
        (str(d), t, 4) for d in days for t in ("a", "a:b", "b")
    ]
    assert read(lake) == sorted([(days[n % 2], ["a", "b", "a:b"][n % 3], n) for n in range(12)] * 2)
    assert [f.bytes for f in files] == [lake.directory.size(f.path) for f in files]


def test_a_lake_by_date_has_a_file_for_each_day_sorted_by_topic(tmp_path: Path) -> None:
    lake = Lake.make(Directory.at(str(tmp_path / "by-date")), INFO, SCHEMA, ("date",))
    writer = LakeWriter(lake.directory, "part", SCHEMA, lake.partition_by)
    days = [DAY, DAY + timedelta(days=1)]
    with writer:
        for _ in range(2):
            writer.write(some_rows(["b", "a", "a:b"] * 4, [days[n % 2] for n in range(12)]))
    lake.commit(writer.files, SCHEMA, at(0), at(1))

    assert sorted(f.partition["date"] for f in writer.files) == [str(day) for day in days]
    for file in writer.files:
        rows = pq.ParquetFile(lake.directory.full(file.path)).read().to_pylist()
        assert [row["topic"] for row in rows] == sorted(["a", "a:b", "b"] * 4)
        said = json.loads(file.statistics)
        assert (said["minValues"]["topic"], said["maxValues"]["topic"]) == ("a", "b")
    assert read(lake) == sorted([(days[n % 2], ["b", "a", "a:b"][n % 3], n) for n in range(12)] * 2)


@pytest.mark.parametrize("partition_by", [("date", "topic"), ("date",)])
def test_a_lake_of_any_partitioning_is_merged_and_pruned_by_topic(
    tmp_path: Path, partition_by: tuple[str, ...]
) -> None:
    lake = Lake.make(Directory.at(str(tmp_path / "lake")), INFO, SCHEMA, partition_by)
    for number, topic in enumerate(["a", "b"], start=1):
        writer = LakeWriter(lake.directory, "part", SCHEMA, partition_by)
        with writer:
            writer.write(some_rows([topic] * 3))
        lake.commit(writer.files, SCHEMA, at(number - 1), at(number))

    assert len(lake.files(topics=["b"])) == 1
    assert optimize(lake) == (0 if "topic" in partition_by else 2)
    assert erase(lake, [0], []) == 2
    assert len(read(Lake.open(lake.directory.url))) == 4


def test_a_row_group_is_written_when_it_is_full(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_writer, "GROUP_ROWS", 4)
    monkeypatch.setattr(lake_writer, "GATHER_BYTES", 1)

    (file,) = written(lake.directory, *[some_rows(["t", "t"])] * 5)

    groups = pq.ParquetFile(lake.directory.full(file.path)).metadata
    assert [groups.row_group(n).num_rows for n in range(groups.num_row_groups)] == [4, 4, 2]


def test_the_log_has_the_bounds_of_all_row_groups(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_writer, "GROUP_ROWS", 1)
    monkeypatch.setattr(lake_writer, "GATHER_BYTES", 1)
    late = NOON + timedelta(microseconds=1)

    (file,) = written(
        lake.directory, some_rows(["t"], id=[5], key=["é"], archived_at=[late]), some_rows(["t"], id=[-1], key=[None])
    )

    assert json.loads(file.statistics) == {
        "numRecords": 2,
        "minValues": {"id": -1, "key": "é", "archived_at": "2027-01-31T12:00:00.000Z"},
        "maxValues": {"id": 5, "key": "é", "archived_at": "2027-01-31T12:00:00.001Z"},
        "nullCount": {"id": 0, "key": 1, "archived_at": 0},
    }


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize(
    "keys",
    [[None, None], ["a", None], ["k" * 33, "k"], ["😀", "😁"], ["\U0010ffff" * 40 + "a", "b"], ["é" * 33, "k" * 5000]],
    ids=["none", "short", "long", "emoji", "greatest", "very long"],
)
def test_what_a_file_has_is_found_by_its_bounds(lake: Lake, keys: list[str | None], compacted: bool) -> None:
    committed(lake, 1, some_rows(["t", "t"], key=keys))
    committed(lake, 2, some_rows(["t"], key=["z"]))
    if compacted:
        assert optimize(lake) == 2

    rows = DeltaTable(lake.directory.url).to_pyarrow_dataset()

    for key in keys:
        same = pc.field("key").is_null() if key is None else pc.field("key") == key
        assert rows.to_table(filter=same).num_rows == keys.count(key), key


def test_the_memory_of_many_topics_is_limited(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_writer, "WAITING_BYTES", 2000)
    monkeypatch.setattr(lake_writer, "GATHER_BYTES", 1)
    topics = [f"t{n}" for n in range(20)]
    writer = LakeWriter(lake.directory, "part", SCHEMA)

    with writer:
        for _ in range(3):
            writer.write(some_rows(topics, payload="x" * 200))
            assert sum(w.bytes for w in writer._waiting.values()) <= 2000
    lake.commit(writer.files, SCHEMA, at(0), at(1))

    assert sorted(topic for _, topic, _ in read(lake)) == sorted(topics * 3)


def test_more_topics_than_open_files_are_split_into_more_files(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_writer, "GROUP_ROWS", 1)
    monkeypatch.setattr(lake_writer, "GATHER_BYTES", 1)
    monkeypatch.setattr(lake_writer, "OPEN_FILES", 2)

    files = written(lake.directory, some_rows(["a", "b", "c"]), some_rows(["a", "b", "c"]))
    lake.commit(files, SCHEMA, at(0), at(1))

    assert sorted(topic for _, topic, _ in read(lake)) == ["a", "a", "b", "b", "c", "c"]
    assert len({f.path for f in files}) == len(files) > 3


def test_a_failed_attempt_leaves_nothing(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_writer, "GROUP_ROWS", 1)
    monkeypatch.setattr(lake_writer, "GATHER_BYTES", 1)
    monkeypatch.setattr(lake_writer, "OPEN_FILES", 1)
    writer = LakeWriter(lake.directory, "part", SCHEMA)

    def fail() -> None:
        with writer:
            writer.write(some_rows(["a", "b", "c"]))
            assert len(data_files(lake.directory.url)) == 3
            raise RuntimeError("the server went away")

    with pytest.raises(RuntimeError, match="the server went away"):
        fail()

    assert data_files(lake.directory.url) == set()


@contextmanager
def _files_of_at_most(size: int) -> Iterator[None]:
    """What a full disk does: a write fails in the middle."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("group_rows", [1, 1000])
def test_a_full_disk_is_reported_and_leaves_nothing(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, group_rows: int
) -> None:
    monkeypatch.setattr(lake_writer, "GROUP_ROWS", group_rows)
    rows = some_rows(["a", "b"], payload="".join(map(str, range(10_000))))

    with _files_of_at_most(1000), pytest.raises(LakeUnwritable, match=r"cannot be written: File too large: make room"):
        written(lake.directory, rows)

    assert data_files(lake.directory.url) == set()


def test_a_commit_that_the_disk_has_no_room_for_was_not_made(lake: Lake) -> None:
    files = written(lake.directory, some_rows(["a", "b"]))

    with _files_of_at_most(300), pytest.raises(LakeUnwritable, match="cannot be written"):
        lake.commit(files, SCHEMA, at(0), at(1))

    again = Lake.open(lake.directory.url)
    assert (read(again), again.position) == ([], at(0))
    assert again.commit(files, SCHEMA, at(0), at(1)) is True
