"""The valid columns of a DataFrame that is published."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from pgrouse.errors import ConfigError
from pyspark_pgrouse.publish.columns import check, normal
from tests.pipeline.publishing import PLAIN, batch, schema


@pytest.mark.parametrize(
    ("columns", "topic", "error"),
    [
        ({**PLAIN, "pyload": "string"}, None, "no column pyload of a message: did you mean payload"),
        ({**PLAIN, "id": "int"}, None, "Known: topic, payload, body, headers, key, on_conflict"),
        ({**PLAIN, "debounce": "string"}, None, "no column debounce of a message: a DataFrame is published without it"),
        ({**PLAIN, "throttle": "string"}, None, "publish these rows by pgrouse.publish_many, or drop the column"),
        ({"payload": "string"}, None, "no column topic and no option topic"),
        (PLAIN, "t", "a column topic and an option topic"),
        ({"payload": "string"}, "no topic", "no topic name"),
        ({"topic": "string"}, None, "neither a column payload nor a column body"),
        ({**PLAIN, "payload": "binary"}, None, "bytes are published in a column body"),
        ({**PLAIN, "body": "string"}, None, "column body is string: it must be binary"),
        ({**PLAIN, "priority": "string"}, None, "column priority is string: it must be tinyint or smallint"),
        ({**PLAIN, "available_at": "timestamp_ntz"}, None, "has no time zone: cast it to TIMESTAMP"),
        ({**PLAIN, "delay": "timestamp"}, None, "column delay is timestamp: it must be interval day"),
    ],
)
def test_invalid_columns_are_reported_before_the_job_runs(
    columns: dict[str, str], topic: str | None, error: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        check(schema(columns), topic)

    assert error in str(caught.value)


def test_every_column_of_a_message_accepts_its_types() -> None:
    columns = {
        **dict.fromkeys(("topic", "payload", "channel", "on_conflict"), "string"),
        "key": "int",
        "body": "binary",
        "headers": "map",
        "priority": "int",
        "max_attempts": "int",
        "delay": "interval",
        "ttl": "double",
        "available_at": "timestamp",
        "expires_at": "timestamp",
        "timeout": "interval",
        "backoff": "struct",
        "retention": "int",
    }

    check(schema(columns), None)
    check(schema({"payload": "struct"}), "t")


def test_delays_are_intervals_or_seconds_and_times_count_from_1970() -> None:
    made = normal(
        batch(
            delay=pa.array([timedelta(seconds=1)], pa.duration("us")),
            ttl=pa.array([Decimal("1.5")]),
            available_at=pa.array([datetime(1970, 1, 2, tzinfo=UTC)], pa.timestamp("us", "UTC")),
            timeout=pa.array([timedelta(seconds=90)], pa.duration("us")),
            backoff=pa.array([{"kind": "constant", "base": "90m"}]),
            retention=pa.array([86_400]),
            key=pa.array([7]),
        ),
        "t",
    )

    assert {name: column.to_pylist() for name, column in made.items()} == {
        "delay": [1_000_000],
        "ttl": [1_500_000],
        "available_at": [86_400_000_000],
        "timeout": [90_000_000],
        "backoff": ['{"kind": "constant", "base": "1h30m"}'],
        "retention": [86_400_000_000],
        "key": ["7"],
        "topic": ["t"],
    }


def test_a_delay_out_of_range_is_one_that_no_message_may_have() -> None:
    made = normal(batch(delay=pa.array([float("nan"), float("inf"), -5.0, 1e300])), "t")

    assert made["delay"].to_pylist() == [-1_000_000, 10**18, -1_000_000, 10**18]


def test_a_column_of_only_nulls_equals_a_missing_one() -> None:
    assert list(normal(batch(payload=["1"], key=[None]), None)) == ["payload"]
