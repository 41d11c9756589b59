"""The errors of rows are reported row by row."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from pyspark_pgrouse.publish.check import faults, unreadable


def columns(**values: Any) -> dict[str, pa.Array]:
    made = {"topic": "t", "payload": "1"} | values
    return {name: pa.array([value]) for name, value in made.items() if value is not None}


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ({"topic": None}, "topic is missing"),
        ({"topic": "a b"}, "no topic name"),
        ({"topic": "x" * 201}, "no topic name"),
        ({"topic": "a\n"}, "no topic name"),
        ({"topic": "a.dlq"}, "reserved"),
        ({"payload": None}, "payload is missing"),
        ({"body": b"1"}, "payload and body were both given"),
        ({"payload": " " * 16_777_217}, "more than 16,777,216 bytes"),
        ({"headers": " " * 65_537}, "more than 65,536 bytes"),
        ({"key": ""}, "key must be"),
        ({"channel": "a\x00"}, "channel must be"),
        ({"priority": 10}, "priority must be an integer from 0 to 9"),
        ({"priority": -1}, "priority must be an integer from 0 to 9"),
        ({"max_attempts": 2**31}, "max_attempts must be"),
        ({"timeout": 999}, "timeout must be from 1 ms to 30 days"),
        ({"retention": 1}, "retention must be from 1 hour to 36,500 days"),
        ({"backoff": "cubic"}, "backoff: "),
        ({"backoff": "{"}, "backoff is not JSON"),
        ({"backoff": '{"base": "1s"}'}, "backoff.kind is missing"),
        ({"backoff": '{"kind": "none", "bas": "1s"}'}, "backoff"),
        ({"delay": -1}, "delay must be from 0 to 36,500 days"),
        ({"ttl": 10**18}, "ttl must be from 0 to 36,500 days"),
        ({"available_at": -1}, "available_at must be between 1970 and 9000"),
        ({"expires_at": 10**18}, "expires_at must be between 1970 and 9000"),
        ({"delay": 1, "available_at": 1}, "delay and available_at were both given"),
        ({"ttl": 1, "expires_at": 1}, "ttl and expires_at were both given"),
        ({"on_conflict": "merge", "key": "k"}, "on_conflict must be one of error, replace, ignore, append"),
        ({"on_conflict": "ignore"}, "on_conflict needs a key"),
        ({"on_conflict": "append", "key": "k", "payload": None, "body": b"1"}, "a body cannot be appended"),
        ({"_corrupt_record": "{"}, "the line cannot be read"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_an_invalid_row_is_reported(row: dict[str, Any], error: str) -> None:
    (reason,) = faults(columns(**row), 1).to_pylist()

    assert error in reason


@pytest.mark.parametrize(
    "row",
    [
        {"topic": "x" * 200},
        {"topic": "A.b_c:d-1"},
        {"key": "ä" * 200, "on_conflict": "ignore"},
        {"on_conflict": "error"},
        {"timeout": 1000, "retention": 3_600_000_000, "backoff": '{"kind": "none"}'},
        {"priority": 0, "max_attempts": 0, "delay": 0, "expires_at": 0},
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_valid_row_is_accepted(row: dict[str, Any]) -> None:
    assert faults(columns(**row), 1).to_pylist() == [None]


def test_the_first_error_of_each_row_is_reported() -> None:
    given = {"topic": pa.array([None, "t", "t"]), "payload": pa.array([None, None, "1"])}

    first, second, third = faults(given, 3).to_pylist()

    assert (first, second[:18], third) == ("topic is missing", "payload is missing", None)


@pytest.mark.parametrize("text", ["", "nope", "{'a': 1}", "NaN", "[1,]", '{"a": 1} x'])
def test_invalid_json_is_reported(text: str) -> None:
    (reason,) = unreadable({"topic": pa.array(["t"]), "payload": pa.array([text])}, 1).to_pylist()

    assert reason.startswith("payload is not JSON: ")
