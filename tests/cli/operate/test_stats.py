"""`pgrouse stats`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable

import pytest

from tests.cli.shell import PGROUSE, Shell
from tests.cli.stage import die, start
from tests.server.postgres import Database
from tests.sql.deaths import die_ago
from tests.sql.exports import export
from tests.sql.queue import Queue


def test_each_topic_is_counted_by_state(pgrouse: Shell, queue: Queue) -> None:
    queue.publish_many(3, "a")
    queue.publish("a", wait="1 hour")
    queue.claim("a", limit=1)
    die(queue, "b")
    start(queue, "w1", "a")

    a, b = pgrouse("stats", "--json").object["topics"]

    assert (a["topic"], a["ready"], a["running"], a["delayed"], a["dead_last_day"], a["handled"]) == (
        "a",
        2,
        1,
        1,
        0,
        True,
    )
    assert (b["topic"], b["ready"], b["dead_last_day"], b["oldest_ready_s"], b["handled"]) == ("b", 0, 1, None, False)
    assert a["oldest_ready_s"] > 0


def test_counts_are_printed_as_a_table(pgrouse: Shell, queue: Queue) -> None:
    queue.publish("a")
    start(queue, "w1", "a")

    heading, row = pgrouse("stats").out.splitlines()

    assert heading.split("  ")[0] == "TOPIC"
    assert row.split()[:5] == ["a", "1", "0", "0", "0"]
    assert row.split()[-1] == "yes"


def test_topics_without_a_handler_are_named(pgrouse: Shell, queue: Queue) -> None:
    for topic in ("a", "b", "c", "d"):
        queue.publish(topic)
    start(queue, "w1", "b")

    ended = pgrouse("stats")

    assert "no worker handles a, c, d: messages published there wait, nothing is lost\n" in ended.err
    assert [line.split()[-1] for line in ended.out.splitlines()[1:]] == ["no", "yes", "no", "no"]


def test_from_a_thousand_on_a_number_is_an_estimate(pgrouse: Shell, queue: Queue) -> None:
    queue.publish_many(999, "exact")
    queue.publish_many(12_345, "large")

    exact, large = pgrouse("stats").out.splitlines()[1:]
    found = pgrouse("stats", "--json").object

    assert exact.split()[:2] == ["exact", "999"]
    assert large.split()[:3] == ["large", "≈", "12,000"]
    # The table has few pages: the estimate is the count.
    assert {row["topic"]: row["ready"] for row in found["topics"]} == {"exact": 999, "large": 12_345}
    assert found["exact_below"] == 1_000


def test_the_last_maintenance_is_shown(pgrouse: Shell, queue: Queue) -> None:
    before = pgrouse("stats")
    queue.conn.execute("SELECT * FROM messages.tick('cron')")
    after = pgrouse("stats")

    assert "maintenance never ran: start a daemon, or `pgrouse cron install`" in before.err
    assert "maintenance: by cron " in after.err
    assert pgrouse("stats", "--json").object["maintenance_age_s"]["cron"] < 60


def test_an_empty_queue_is_no_error(pgrouse: Shell) -> None:
    ended = pgrouse("stats")

    assert (ended.code, ended.out) == (0, "")
    assert ended.err.startswith("no message waits or runs: publish one\n")


def test_an_analyst_may_read_the_counts(pgrouse: Shell, queue: Queue, acting_as: Callable[[str], None]) -> None:
    queue.publish("a")
    acting_as("messages_analyst")

    assert pgrouse("stats", "--json").object["topics"][0]["ready"] == 1


@pytest.mark.long
@pytest.mark.parametrize("arguments", [["--json"], []])
def test_watch_in_a_pipe_prints_repeatedly(database: Database, queue: Queue, arguments: list[str]) -> None:
    queue.publish("a")
    environ = {**os.environ, "PGROUSE_DSN": database.dsn}
    command = [PGROUSE, "stats", "--watch", "--interval", "20ms", *arguments]

    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        queue.publish("b")
        seen_later = any(line.startswith("b ") or _has_topic(line, "b") for line in process.stdout)
        process.send_signal(signal.SIGINT)

    assert first.startswith("TOPIC") or _has_topic(first, "a")
    assert seen_later


def _has_topic(line: str, topic: str) -> bool:
    return line.startswith("{") and topic in [each["topic"] for each in json.loads(line)["topics"]]


def test_an_export_that_delays_the_retention_is_named(pgrouse: Shell, queue: Queue) -> None:
    died = die_ago(queue, "40 days")
    export(queue, "lake", upto=died)
    assert "retention" not in pgrouse("stats").err
    die_ago(queue, "40 days")

    assert "retention waits for export lake since " in " ".join(pgrouse("stats").err.split())
    (held,) = pgrouse("stats", "--json").object["list_exports"]
    assert (held["name"], held["lake"]) == ("lake", "/lake")
