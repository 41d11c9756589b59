"""`pgrouse pipeline publish`: files become messages, once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import folder, pgrouse, shell
from tests.cli.shell import Shell
from tests.sql.queue import Queue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["folder", "pgrouse", "shell"]
pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

LINES = """\
{"topic": "orders", "payload": {"id": 12345678901234567890, "price": 1.10, "none": null}, "priority": 3, \
"key": "k", "headers": {"h": [1]}}

{"topic": "orders", "payload": "[1]", "delay": 60, "available_at": null}
{"topic": "orders", "body": "AAE="}
"""
BAD = """\
{"topic": "orders", "payload": {"id": 1}}
{"topic": "no topic", "payload": 1}
{"topic": "orders", "payload": 1, "priority": "high"}
{"topic": "orders",
"""


def found(queue: Queue) -> list[tuple[str, str | None]]:
    return [
        tuple(row) for row in queue.rows("SELECT topic, payload::text FROM messages.message ORDER BY payload::text")
    ]


def test_lines_of_json_keep_every_digit_and_the_same_file_is_published_once(
    pgrouse: Shell, queue: Queue, tmp_path: Path
) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text(LINES)

    first = pgrouse("pipeline", "publish", file, "--json")
    second = pgrouse("pipeline", "publish", file)

    assert (first.code, first.object["published"], first.object["is_repeat"]) == (0, 3, False)
    assert first.object["job"].startswith("files/")
    assert second.out.startswith(f"published before, as job {first.object['job']}: nothing was published now")
    rows = queue.rows(
        "SELECT payload::text, body, priority, key, headers FROM messages.message ORDER BY priority, body"
    )
    assert [tuple(row) for row in rows] == [
        ('{"id": 12345678901234567890, "none": null, "price": 1.10}', None, 3, "k", {"h": [1]}),
        (None, b"\x00\x01", 5, None, None),
        ("[1]", None, 5, None, None),
    ]
    file.write_text(LINES.replace('"k"', '"l"') + "\n")
    assert pgrouse("pipeline", "publish", file).out.startswith("published 3 messages")


def test_invalid_rows_are_reported_written_and_end_the_command_with_1(
    pgrouse: Shell, queue: Queue, tmp_path: Path, spark: SparkSession
) -> None:
    (tmp_path / "in.jsonl").write_text(BAD)
    dry = pgrouse("pipeline", "publish", tmp_path / "in.jsonl", "--dry-run", "--json")
    assert (dry.code, queue.ids()) == (1, [])

    ended = pgrouse("pipeline", "publish", tmp_path / "in.jsonl", "--job", "j", "--rejected", tmp_path / "bad")

    assert (ended.code, ended.out) == (1, "published 1 message as job j\n")
    assert "3 rows rejected" in ended.err
    assert "topic is no topic name" in ended.err
    rejected = spark.read.parquet(str(tmp_path / "bad")).collect()
    assert len(rejected) == 3
    assert sum("the line cannot be read" in row["reason"] for row in rejected) == 2
    assert sum(each["rows"] for each in dry.objects if each["reason"]) == 3


def test_csv_has_its_columns_typed_and_a_value_of_the_wrong_type_is_rejected(
    pgrouse: Shell, queue: Queue, tmp_path: Path
) -> None:
    lines = [
        "topic,payload,priority,available_at",
        'a,"{""id"": ""x\\y""}",1,2100-01-01T00:00:00Z',
        "a,2,high,",
        "a,3,,",
    ]
    (tmp_path / "in.csv").write_text("\n".join(lines).replace("x\\y", "x"))

    ended = pgrouse("pipeline", "publish", tmp_path / "in.csv", "--format", "csv")

    assert ended.code == 1
    assert found(queue) == [("a", "3"), ("a", '{"id": "x"}')]
    assert queue.value("SELECT max(extract(year FROM available_at))::int FROM messages.message") == 2100


def test_whole_rows_are_payloads_unchanged(pgrouse: Shell, queue: Queue, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"topic": "mine", "n": 1.10}\n[2]\n')

    pgrouse("pipeline", "publish", tmp_path / "in.jsonl", "--topic", "t", "--row-as-payload")

    assert found(queue) == [("t", "[2]"), ("t", '{"n": 1.10, "topic": "mine"}')]


def test_a_table_is_published_once_with_a_key_and_each_time_without(
    pgrouse: Shell, queue: Queue, spark: SparkSession
) -> None:
    spark.sql("SELECT 't' AS topic, '1' AS payload").createOrReplaceTempView("outbox")

    codes = [
        pgrouse("pipeline", "publish", "--table", "outbox", *more).code for more in ([], ["--job", "j"], ["--job", "j"])
    ]

    assert codes == [0, 0, 0]
    assert len(queue.ids()) == 2


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        ([], 2, "either paths, or --table"),
        (["x", "--table", "t"], 2, "either paths, or --table"),
        (["x", "--row-as-payload"], 2, "--row-as-payload needs --topic"),
        (["missing.jsonl"], 78, "cannot read missing.jsonl"),
        (["odd.jsonl"], 78, "no column pay of a message"),
        (["odd.jsonl", "--rejected", "odd.jsonl"], 78, "no column pay"),
    ],
)
def test_an_invalid_source_is_reported(
    pgrouse: Shell, folder: Path, arguments: list[str], code: int, error: str
) -> None:
    (folder / "odd.jsonl").write_text(json.dumps({"topic": "t", "pay": 1}))

    ended = pgrouse("pipeline", "publish", *[str(folder / a) if a.endswith("jsonl") else a for a in arguments])

    assert (ended.code, error in ended.err.replace(f"{folder}/", "")) == (code, True)
