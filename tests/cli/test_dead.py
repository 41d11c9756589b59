"""`pgrouse dead`."""

from __future__ import annotations

import pytest

from tests.cli.shell import Shell
from tests.cli.stage import die
from tests.sql.queue import Queue


def listed(pgrouse: Shell, *arguments: object) -> list[int]:
    """Return the ids that the list has."""
    return [row["id"] for row in pgrouse("dead", "list", "--json", *arguments).objects]


def test_dead_messages_are_listed_the_latest_first(pgrouse: Shell, queue: Queue) -> None:
    (old,) = die(queue, "a", age="1 hour")
    (older,) = die(queue, "a", age="2 hours")
    (new,) = die(queue, "b")

    assert listed(pgrouse) == [new, old, older]


def test_what_succeeded_or_was_cancelled_is_not_dead(pgrouse: Shell, queue: Queue) -> None:
    cancelled, _ = queue.publish("a"), queue.publish("b")
    queue.call("cancel", [cancelled])
    queue.settle("complete", queue.claim("b"))

    ended = pgrouse("dead", "list")

    assert (ended.code, ended.out, ended.err) == (0, "", "no dead messages\n")


def test_filters_narrow_the_list(pgrouse: Shell, queue: Queue) -> None:
    (failed,) = die(queue, "a")
    (rejected,) = die(queue, "a", result="reject", age="1 hour")
    (other,) = die(queue, "b", age="1 day")

    assert listed(pgrouse, "--topic", "a") == [failed, rejected]
    assert listed(pgrouse, "--result", "rejected") == [rejected]
    assert listed(pgrouse, "--since", "2h") == [failed, rejected]
    assert listed(pgrouse, "--since", "2d", "--topic", "b") == [other]
    assert listed(pgrouse, "--topic", "none") == []


def test_pages_follow_each_other_without_a_gap(pgrouse: Shell, queue: Queue) -> None:
    ids = die(queue, *(["a"] * 5))

    first = pgrouse("dead", "list", "--limit", "2")
    second = listed(pgrouse, "--limit", "3", "--before", ids[3])

    assert first.err == f"there may be more: --before {ids[3]}\n"
    assert second == [ids[2], ids[1], ids[0]]


def test_people_see_what_the_error_says_in_the_end(pgrouse: Shell, queue: Queue) -> None:
    die(queue, "orders", error='Traceback (most recent call last):\n  File "x"\nTimeoutError: \x1b[31mno answer')

    heading, row = pgrouse("dead", "list").out.splitlines()

    assert heading.split() == ["ID", "TOPIC", "RESULT", "ENDED", "ATTEMPTS", "ERROR"]
    assert row.split()[1:3] == ["orders", "failed"]
    assert row.endswith("TimeoutError: \\x1b[31mno answer")


def test_what_was_put_back_is_listed_only_on_demand(pgrouse: Shell, queue: Queue) -> None:
    (dead,) = die(queue, "a")
    new = pgrouse("redrive", dead, "--json").object["message_id"]

    assert listed(pgrouse) == []
    (row,) = pgrouse("dead", "list", "--redriven", "--json").objects
    assert (row["id"], row["redriven_as"]) == (dead, new)


def test_a_script_can_fail_if_there_is_any(pgrouse: Shell, queue: Queue) -> None:
    before = pgrouse("dead", "list", "--fail-if-any")
    die(queue, "a")
    after = pgrouse("dead", "list", "--fail-if-any")

    assert (before.code, after.code) == (0, 1)
    assert pgrouse("dead", "list").code == 0


@pytest.mark.parametrize("result", ["fail", "reject"])
def test_a_dead_message_is_shown_in_full(pgrouse: Shell, queue: Queue, result: str) -> None:
    (dead,) = die(queue, "a", result=result)

    shown = pgrouse("dead", "show", dead, "--json").object

    assert (shown["id"], shown["error"], shown["payload"]) == (dead, "boom", 1)


def test_a_message_that_lives_is_not_shown_as_dead(pgrouse: Shell, queue: Queue) -> None:
    alive = queue.publish()

    ended = pgrouse("dead", "show", alive)

    assert ended.code == 1
    assert ended.err == f"pgrouse: message {alive} is not dead, it is ready: `pgrouse message show {alive}`\n"
