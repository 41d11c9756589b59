"""`pgrouse explain`."""

from __future__ import annotations

from tests.cli.shell import Shell
from tests.cli.stage import die
from tests.sql.queue import Queue


def test_the_reasons_are_listed_most_decisive_first(pgrouse: Shell, queue: Queue) -> None:
    message = queue.publish("mail")
    queue.call("pause", "mail", "too loud")

    lines = pgrouse("explain", message).out.splitlines()

    assert [line.split()[0] for line in lines] == ["WHY", "paused", "unhandled"]
    assert "too loud" in lines[1]


def test_json_has_the_details_for_programs(pgrouse: Shell, queue: Queue) -> None:
    message = queue.publish("mail")
    queue.call("pause", "mail", "too loud")

    explained = pgrouse("explain", message, "--json").object

    assert explained["id"] == message
    assert explained["reasons"][0]["code"] == "paused"
    assert explained["reasons"][0]["detail"]["reason"] == "too loud"


def test_a_dead_message_is_explained(pgrouse: Shell, queue: Queue) -> None:
    (message,) = die(queue, "mail", error="Traceback\nValueError: boom")

    ended = pgrouse("explain", message)

    assert ended.code == 0
    assert "ValueError: boom" in ended.out


def test_an_unknown_message_is_exit_code_1(pgrouse: Shell) -> None:
    ended = pgrouse("explain", 999_999)

    assert ended.code == 1
    assert "it was never published" in ended.out
