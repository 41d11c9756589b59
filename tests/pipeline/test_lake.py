"""A lake: the content of its manifests, and the files that its writer makes."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pgrouse.errors import ConfigError
from pyspark_pgrouse.lake import writer as lake_writer
from pyspark_pgrouse.lake.columns import arrow_schema
from pyspark_pgrouse.lake.directory import Directory, LakeUnwritable
from pyspark_pgrouse.lake.frame import batches_of
from pyspark_pgrouse.lake.lake import Lake, LakeInfo
from pyspark_pgrouse.lake.manifest import CommitKind, DataFile, LakeColumn, Manifest, folder
from pyspark_pgrouse.lake.writer import LakeWriter
from tests.pipeline.lakes import data_files

DAY = date(2027, 1, 31)
NOON = datetime(2027, 1, 31, 12, tzinfo=UTC)
COLUMNS = (
    LakeColumn("id", "int64"),
    LakeColumn("topic", "string"),
    LakeColumn("payload", "string"),
    LakeColumn("date", "date32[day]"),
)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.make(Directory.at(str(tmp_path / "lake")), LakeInfo("1-2-3", "default", "77", (), None, False, NOON))


def a_file(name: str, day: date = DAY, topic: str = "t", rows: int = 1) -> DataFile:
    return DataFile(f"{folder(day, topic)}/{name}.parquet", day, topic, rows, 100)


def a_commit(
    number: int, *add: DataFile, remove: tuple[str, ...] = (), columns: tuple[LakeColumn, ...] = COLUMNS
) -> Manifest:
    end = None if remove else {"v": 1, "sys": "77", "xid": str(number), "id": number}
    return Manifest(
        number, CommitKind.COMPACTION if remove else CommitKind.EXPORT, NOON, end, end, columns, add, remove
    )


def some_rows(topics: list[str], days: list[date] | None = None, payload: str = "{}") -> pa.RecordBatch:
    count = len(topics)
    values = [list(range(count)), topics, [payload] * count, days or [DAY] * count]
    return pa.RecordBatch.from_pydict(dict(zip([c.name for c in COLUMNS], values, strict=True)), arrow_schema(COLUMNS))


def written(directory: Directory, *batches: pa.RecordBatch) -> list[DataFile]:
    writer = LakeWriter(directory, "stem", COLUMNS)
    with writer:
        for batch in batches:
            writer.write(batch)
    return writer.files


def read(directory: Directory, files: list[DataFile]) -> list[tuple[date, str, int]]:
    tables = [pq.read_table(directory.full(f.path), partitioning=None) for f in files]
    rows = pa.concat_tables(tables).to_pylist()
    return sorted((row["date"], row["topic"], row["id"]) for row in rows)


# Manifests


def test_committed_files_are_listed_in_the_order_of_commits(lake: Lake) -> None:
    lake.commit(a_commit(1, a_file("a")))
    lake.commit(a_commit(2, a_file("b"), a_file("c")))

    snapshot = Lake.open(lake.directory.url).snapshot()

    assert [f.path for f in snapshot.files] == [a_file(name).path for name in "abc"]
    assert (snapshot.number, snapshot.end) == (2, {"v": 1, "sys": "77", "xid": "2", "id": 2})


def test_a_commit_number_is_used_once(lake: Lake) -> None:
    assert lake.commit(a_commit(1, a_file("a"))) is True
    assert lake.commit(a_commit(1, a_file("b"))) is False
    assert [f.path for f in lake.snapshot().files] == [a_file("a").path]


def test_a_commit_that_replaces_files_changes_no_row_and_no_position(lake: Lake) -> None:
    lake.commit(a_commit(1, a_file("a"), a_file("b")))
    lake.commit(a_commit(2, a_file("ab"), remove=(a_file("a").path, a_file("b").path)))

    snapshot = lake.snapshot()

    assert [f.path for f in snapshot.files] == [a_file("ab").path]
    assert snapshot.end == {"v": 1, "sys": "77", "xid": "1", "id": 1}


def test_a_reader_that_begins_at_a_checkpoint_has_the_same_state(lake: Lake) -> None:
    lake.commit(a_commit(1, a_file("a"), a_file("b")))
    lake.commit(a_commit(2, a_file("ab"), remove=(a_file("a").path, a_file("b").path)))
    before = lake.snapshot()
    lake.checkpoint(before)
    lake.directory.remove(["_manifest/00000000000000000001.json", "_manifest/00000000000000000002.json"])

    again = Lake.open(lake.directory.url)
    assert again.snapshot() == before

    again.commit(a_commit(3, a_file("c")))
    assert [f.path for f in again.snapshot().files] == [a_file("ab").path, a_file("c").path]


def test_files_are_selected_by_day_and_topic(lake: Lake) -> None:
    files = [a_file("a"), a_file("b", DAY + timedelta(days=1)), a_file("c", topic="x:y")]
    lake.commit(a_commit(1, *files))

    def chosen(**of: object) -> list[str]:
        return [path.rsplit("/", 1)[-1].removesuffix(".parquet") for path in lake.files(**of)]  # type: ignore[arg-type]

    midnight = datetime(2027, 2, 1, tzinfo=UTC)
    assert chosen(since=midnight) == ["b"]
    assert chosen(until=midnight) == ["a", "c"]
    assert chosen(since=NOON, until=midnight + timedelta(microseconds=1)) == ["a", "b", "c"]
    assert chosen(topics=["x:y"]) == ["c"]
    assert all(Path(path).is_absolute() for path in lake.files())


def test_added_and_removed_columns_are_columns_of_the_lake(lake: Lake) -> None:
    lake.commit(a_commit(1, a_file("a"), columns=(LakeColumn("id", "int32"), LakeColumn("old", "string"))))
    lake.commit(a_commit(2, a_file("b"), columns=(LakeColumn("id", "int64"), LakeColumn("new", "bool"))))

    assert lake.snapshot().columns == (
        LakeColumn("id", "int64"),
        LakeColumn("old", "string"),
        LakeColumn("new", "bool"),
    )


def test_a_column_that_a_file_lacks_is_null(lake: Lake) -> None:
    (file,) = written(lake.directory, some_rows(["t"]))

    (rows,) = batches_of(lake.directory, file.path, (*COLUMNS, LakeColumn("new", "bool")))

    assert rows.to_pylist() == [{"id": 0, "topic": "t", "payload": "{}", "date": DAY, "new": None}]


# The directory


@pytest.mark.parametrize("url", ["nowhere", "file:///nowhere/at/all"])
def test_a_missing_lake_is_not_opened(url: str) -> None:
    with pytest.raises(ConfigError, match=r"there is no lake in .*nowhere"):
        Lake.open(url)


def test_an_unknown_scheme_is_named() -> None:
    with pytest.raises(ConfigError, match="nosuch"):
        Lake.open("nosuch://bucket/lake")


def test_a_lake_of_a_later_format_is_not_read(lake: Lake) -> None:
    about = json.loads(lake.info.as_json()) | {"format": 2}
    lake.directory.replace("_pgrouse/lake.json", json.dumps(about).encode())

    with pytest.raises(ConfigError, match="has format 2, but this version reads 1"):
        Lake.open(lake.directory.url)


def test_a_topic_whose_name_no_file_system_accepts_has_its_own_directory() -> None:
    assert folder(DAY, "a:b") == "date=2027-01-31/topic=a%3Ab"

    long = [folder(DAY, ":" * 199 + end) for end in "xy"]
    assert len(set(long)) == 2
    assert all(len(part.encode()) <= 255 for path in long for part in path.split("/"))


# The writer


def test_rows_are_split_by_day_and_topic_and_none_is_lost(lake: Lake) -> None:
    days = [DAY, DAY + timedelta(days=1)]
    batch = some_rows(["a", "b", "a:b"] * 4, [days[n % 2] for n in range(12)])

    files = written(lake.directory, batch, some_rows([]), batch)

    assert sorted((f.date, f.topic, f.rows) for f in files) == [(d, t, 4) for d in days for t in ("a", "a:b", "b")]
    assert read(lake.directory, files) == sorted([(days[n % 2], ["a", "b", "a:b"][n % 3], n) for n in range(12)] * 2)
    assert [f.bytes for f in files] == [lake.directory.size(f.path) for f in files]


def test_a_row_group_is_written_when_it_is_full(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_writer, "GROUP_ROWS", 4)
    monkeypatch.setattr(lake_writer, "GATHER_BYTES", 1)

    (file,) = written(lake.directory, *[some_rows(["t", "t"])] * 5)

    groups = pq.ParquetFile(lake.directory.full(file.path)).metadata
    assert [groups.row_group(n).num_rows for n in range(groups.num_row_groups)] == [4, 4, 2]


def test_the_memory_of_many_topics_is_limited(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_writer, "WAITING_BYTES", 2000)
    monkeypatch.setattr(lake_writer, "GATHER_BYTES", 1)
    topics = [f"t{n}" for n in range(20)]
    writer = LakeWriter(lake.directory, "stem", COLUMNS)

    with writer:
        for _ in range(3):
            writer.write(some_rows(topics, payload="x" * 200))
            assert sum(w.bytes for w in writer._waiting.values()) <= 2000

    assert sorted(topic for _, topic, _ in read(lake.directory, writer.files)) == sorted(topics * 3)


def test_more_topics_than_open_files_are_split_into_more_files(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_writer, "GROUP_ROWS", 1)
    monkeypatch.setattr(lake_writer, "GATHER_BYTES", 1)
    monkeypatch.setattr(lake_writer, "OPEN_FILES", 2)

    files = written(lake.directory, some_rows(["a", "b", "c"]), some_rows(["a", "b", "c"]))

    assert sorted(topic for _, topic, _ in read(lake.directory, files)) == ["a", "a", "b", "b", "c", "c"]
    assert len({f.path for f in files}) == len(files) > 3


def test_a_failed_attempt_leaves_nothing(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_writer, "GROUP_ROWS", 1)
    monkeypatch.setattr(lake_writer, "GATHER_BYTES", 1)
    monkeypatch.setattr(lake_writer, "OPEN_FILES", 1)
    writer = LakeWriter(lake.directory, "stem", COLUMNS)

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
