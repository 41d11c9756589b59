"""The options of the format, and which values are refused."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from pgrouse.errors import ConfigError
from pyspark_pgrouse.options import Mode, Operation, Options

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_a_read_without_options_is_of_the_whole_archive_of_the_environments_database() -> None:
    options = Options.parse({})

    assert (options.mode, options.dsn, options.topics, options.payload) == (Mode.ARCHIVE, None, (), None)
    assert options.starting == "earliest"
    assert (options.columns, options.limit, options.pushdown, options.replica_dsn) == ((), None, None, None)


def test_a_read_or_write_without_dsn_uses_the_database_of_the_commands(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pgrouse.toml").write_text('[database]\ndsn = "dbname=of_the_file"\n')

    assert Options.parse({}, Operation.WRITE).dsn == Options.parse({}).dsn == "dbname=of_the_file"
    monkeypatch.setenv("PGROUSE_DSN", "dbname=of_the_environment")
    assert Options.parse({}).dsn == "dbname=of_the_environment"
    assert Options.parse({"dsn": "dbname=given"}).dsn == "dbname=given"


def test_names_are_case_insensitive() -> None:
    given = CaseInsensitiveDict({"numPartitions": "7", "MAXROWSPERBATCH": "5", "startingoffsets": "latest"})

    options = Options.parse(given, Operation.STREAM)

    assert (options.partitions, options.max_rows, options.starting) == (7, 5, "latest")


@pytest.mark.parametrize("name", ["dns", "topic_s", "numPartition", "startingOffset"])
def test_an_unknown_option_is_refused_with_the_nearest_one_and_all_others(name: str) -> None:
    with pytest.raises(
        ConfigError, match=r"did you mean (dsn|topics|numPartitions|startingOffsets)\?.*Known: mode, dsn"
    ):
        Options.parse({name: "x"})


def test_an_unknown_option_without_a_near_name_is_refused_with_all_options() -> None:
    with pytest.raises(ConfigError, match="no option path: Known: mode, dsn, schema, topics"):
        Options.parse({"path": "/lake"})


@pytest.mark.parametrize(
    ("given", "use", "error"),
    [
        ({"mode": "ready", "since": "2h"}, Operation.READ, "option since does not go with mode ready"),
        ({"mode": "ready", "startingOffsets": "latest"}, Operation.READ, "startingOffsets does not go with mode ready"),
        ({"mode": "ready"}, Operation.STREAM, "mode ready is for spark.read.*pgrouse pipeline consume"),
        ({"startingOffsets": "latest"}, Operation.BATCH, "option startingOffsets is for streams"),
        ({"maxRowsPerBatch": "5"}, Operation.BATCH, "option maxRowsPerBatch is for streams"),
        ({"pushdown": "true"}, Operation.STREAM, "option pushdown is for batch reads"),
        ({"limit": "5"}, Operation.STREAM, "option limit is for batch reads"),
        ({"limit": "5", "pushdown": "true"}, Operation.BATCH, "pushdown and limit do not go together"),
        (
            {"groupBy": "topic", "limit": "5"},
            Operation.BATCH,
            "option groupBy does not go with columns, payload and limit",
        ),
        ({"groupBy": "topic"}, Operation.STREAM, "option groupBy is for batch reads"),
        ({"mode": "ready", "replicaDsn": "x"}, Operation.BATCH, "option replicaDsn does not go with mode ready"),
        ({"payload": "schema"}, Operation.BATCH, "payload=schema needs option topics with one topic"),
        ({"payload": "infer", "topics": "a,b"}, Operation.BATCH, "payload=infer needs option topics with one topic"),
        ({"payload": "infer", "topics": "a"}, Operation.STREAM, "payload=infer is for batch reads"),
        ({"since": "2h"}, Operation.STREAM, "must be a moment.*must find the same rows"),
        ({"since": "2026-03-02T00:00Z", "until": "2026-03-01T00:00Z"}, Operation.BATCH, "is not before option until"),
        ({"job": "j"}, Operation.READ, "option job is for writing, not for reading"),
        ({"topics": "a"}, Operation.WRITE, "option topics is for reading, not for writing"),
        ({"mode": "publish"}, Operation.READ, "must be one of archive, dead, ready, found"),
    ],
)
def test_contradicting_options_are_refused_with_the_reason(given: dict[str, str], use: Operation, error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        Options.parse(given, use)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("numPartitions", "0"),
        ("numPartitions", "-1"),
        ("numPartitions", "1_000"),
        ("numPartitions", "10001"),
        ("maxRowsPerBatch", "many"),
        ("maxRowsPerBatch", "9" * 5000),
        ("topics", "a,,b"),
        ("topics", ""),
        ("columns", "id,,topic"),
        ("limit", "0"),
        ("since", "yesterday"),
        ("since", "2026-03-01T00:00"),
        ("until", ""),
        ("startingOffsets", "newest"),
        ("startingOffsets", "[1]"),
        ("payload", "yaml"),
        ("pushdown", "yes"),
        ("mode", "ARCHIVED"),
    ],
)
def test_an_invalid_value_is_refused_by_the_name_of_its_option(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"option {name}"):
        Options.parse({name: value})


def test_a_time_may_have_a_zone_or_be_a_duration_before_now() -> None:
    options = Options.parse({"since": "36h", "until": "2026-03-01T09:30:00+02:00"}, Operation.BATCH, NOW)

    assert options.since == datetime(2026, 2, 28, 0, tzinfo=UTC)
    assert options.until == datetime(2026, 3, 1, 7, 30, tzinfo=UTC)


def test_topics_are_separated_by_commas_with_or_without_spaces() -> None:
    assert Options.parse({"topics": "mail, order.paid"}).topics == ("mail", "order.paid")


def test_a_write_has_its_own_options_and_ignores_those_of_spark() -> None:
    options = Options.parse({"job": "nightly", "topic": "mail", "checkpointLocation": "/c"}, Operation.WRITE)

    assert (options.mode, options.job, options.topic) == (Mode.PUBLISH, "nightly", "mail")
