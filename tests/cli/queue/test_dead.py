"""`pgrouse dead`."""

from __future__ import annotations

import pytest

from tests.cli.shell import Shell
from tests.cli.stage import die
from tests.sql.queue import Queue


def listed(pgrouse: Shell, *arguments: object) -> list[int]:
    """Return the listed ids."""
    return [row["id"] for row in pgrouse("dead", "list", "--json", *arguments).objects]


def test_dead_messages_are_listed_latest_first(pgrouse: Shell, queue: Queue) -> None:
    (old,) = die(queue, "a", age="1 hour")
    (older,) = die(queue, "a", age="2 hours")
    (new,) = die(queue, "b")

    assert listed(pgrouse) == [new, old, older]


def test_succeeded_and_cancelled_messages_are_not_dead(pgrouse: Shell, queue: Queue) -> None:
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


def test_the_table_shows_the_end_of_the_error(pgrouse: Shell, queue: Queue) -> None:
    die(queue, "orders", error='Traceback (most recent call last):\n  File "x"\nTimeoutError: \x1b[31mno answer')

    heading, row = pgrouse("dead", "list").out.splitlines()

    assert heading.split() == ["ID", "TOPIC", "RESULT", "ENDED", "ATTEMPTS", "ERROR"]
    assert row.split()[1:3] == ["orders", "failed"]
    assert row.endswith("TimeoutError: \\x1b[31mno answer")


def test_redriven_messages_are_listed_only_on_demand(pgrouse: Shell, queue: Queue) -> None:
    (dead,) = die(queue, "a")
    new = pgrouse("redrive", dead, "--json").object["message_id"]

    assert listed(pgrouse) == []
    (row,) = pgrouse("dead", "list", "--redriven", "--json").objects
    assert (row["id"], row["redriven_as"]) == (dead, new)


def test_a_script_can_fail_if_a_message_is_dead(pgrouse: Shell, queue: Queue) -> None:
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


def test_a_live_message_is_not_shown_as_dead(pgrouse: Shell, queue: Queue) -> None:
    alive = queue.publish()

    ended = pgrouse("dead", "show", alive)

    assert ended.code == 1
    assert ended.err == f"pgrouse: message {alive} is not dead, it is ready: `pgrouse message show {alive}`\n"


def test_filters_by_fingerprint_error_text_and_time_narrow_the_list(pgrouse: Shell, queue: Queue) -> None:
    (full,) = die(queue, "a", error="disk 7 is full")
    (old,) = die(queue, "a", error="no route", age="2 hours")

    assert listed(pgrouse, "--fingerprint", queue.archived(full).error_fingerprint) == [full]
    assert listed(pgrouse, "--error", "NO ROUTE") == [old]
    assert listed(pgrouse, "--until", "1h") == [old]


# Groups


def test_errors_that_differ_only_in_details_are_one_group(pgrouse: Shell, queue: Queue) -> None:
    die(queue, "a", error="disk 7 is full")
    (last,) = die(queue, "a", error="disk 8 is full")
    die(queue, "b", error="no route")

    many, one = pgrouse("dead", "group", "--json").objects

    assert (many["topic"], many["count"], many["sample_id"], many["sample_error"]) == ("a", 2, last, "disk 8 is full")
    assert (one["topic"], one["count"], one["at_least"]) == ("b", 1, False)


def test_the_table_of_groups_shows_count_age_trend_and_a_sample(pgrouse: Shell, queue: Queue) -> None:
    for age in ("10 minutes", "10 minutes", "90 minutes", "4 hours 30 minutes"):
        die(queue, "orders", error="Traceback\nTimeoutError: no answer", age=age)

    heading, row = pgrouse("dead", "group", "--since", "6h").out.splitlines()

    assert heading.split("  ")[0] == "DEAD"
    assert "BY HOUR" in heading
    assert "·▅··▅█" in row
    assert row.split()[:3] == ["4", "orders", "failed"]
    assert row.endswith("TimeoutError: no answer")


def test_groups_whose_messages_were_all_redriven_are_shown_on_demand(pgrouse: Shell, queue: Queue) -> None:
    (dead,) = die(queue, "a")
    pgrouse("redrive", dead)

    assert pgrouse("dead", "group").err == "no dead messages\n"
    (row,) = pgrouse("dead", "group", "--redriven", "--json").objects
    assert (row["count"], row["redriven"]) == (1, 1)


def test_a_count_above_the_limit_ends_with_a_plus(pgrouse: Shell, queue: Queue) -> None:
    queue.publish_many(2100)
    claimed = queue.claim(limit=2100)
    queue.settle("fail", claimed, ["boom"] * len(claimed))

    _, row = pgrouse("dead", "group").out.splitlines()

    assert row.split()[0] == "2,000+"


# Repeated redrives


def test_the_list_counts_the_redrives_behind_a_message_if_there_are_any(pgrouse: Shell, queue: Queue) -> None:
    (first,) = die(queue, "a")
    second = pgrouse("redrive", first, "--json").object["message_id"]
    queue.settle("fail", queue.claim("a"), ["boom"])

    heading, row = pgrouse("dead", "list").out.splitlines()

    assert heading.split()[:6] == ["ID", "TOPIC", "RESULT", "ENDED", "ATTEMPTS", "REDRIVES"]
    assert (row.split()[0], row.split()[-2:]) == (str(second), ["1", "boom"])


def test_the_history_of_redrives_is_shown(pgrouse: Shell, queue: Queue) -> None:
    (first,) = die(queue, "a")
    second = pgrouse("redrive", first, "--json").object["message_id"]
    queue.settle("fail", queue.claim("a"), ["boom"])
    third = pgrouse("redrive", second, "--json").object["message_id"]

    shown = pgrouse("dead", "show", second)

    assert f"lineage      {first} (failed) → {second} (this one) → {third} (ready)\n" in shown.out
    assert [(m["id"], m["kind"]) for m in pgrouse("dead", "show", second, "--json").object["lineage"]] == [
        (first, "ancestor"),
        (second, "this"),
        (third, "descendant"),
    ]


def test_a_dead_message_names_its_dead_letter(pgrouse: Shell, queue: Queue) -> None:
    queue.policy("a", dead_letter=True)
    (dead,) = die(queue, "a")
    (copy,) = queue.ids()

    assert f"dead letter  {copy} (ready)\n" in pgrouse("dead", "show", dead).out


# Redrives of dead letters


def test_dead_letters_are_moved_back_by_their_ids(pgrouse: Shell, queue: Queue) -> None:
    queue.policy("a", dead_letter=True)
    (dead,) = die(queue, "a")
    (copy,) = queue.ids()

    ended = pgrouse("dead", "requeue", copy)

    (new,) = queue.ids()
    assert (ended.code, ended.out, ended.err) == (0, f"{copy} is back as {new}\n", "")
    assert (queue.message(new).topic, queue.message(new).redriven_from) == ("a", dead)


@pytest.mark.parametrize("topic", ["a", "a.dlq"])
def test_dead_letters_of_a_topic_are_moved_back_in_several_batches(
    pgrouse: Shell, queue: Queue, monkeypatch: pytest.MonkeyPatch, topic: str
) -> None:
    monkeypatch.setattr("pgrouse.cli.queue.dead.PAGE", 2)
    queue.policy("*", dead_letter=True)
    die(queue, "a", "a", "b")
    queue.publish("a", channel="c")
    queue.settle("fail", queue.claim("a"), ["boom"])

    ended = pgrouse("dead", "requeue", "--topic", topic)

    assert ended.out == "moved 3 messages back\n"
    assert sorted(row.topic for row in queue.rows("SELECT topic FROM messages.message")) == ["a", "a", "a", "b.dlq"]


def test_an_id_that_is_no_waiting_dead_letter_is_reported(pgrouse: Shell, queue: Queue) -> None:
    alive = queue.publish()

    ended = pgrouse("dead", "requeue", alive)

    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith(f"pgrouse: message {alive} not moved: not a waiting copy in a .dlq topic")
    assert pgrouse("dead", "requeue", "--topic", "t").out == "no dead letters wait: nothing was moved\n"


@pytest.mark.parametrize("arguments", [[], ["1", "--topic", "a"], ["1", "--limit", "1"]])
def test_redrive_requires_a_selection_of_dead_letters(shell: Shell, arguments: list[str]) -> None:
    ended = shell("dead", "requeue", *arguments)

    assert ended.code == 2
    assert ended.err.startswith("pgrouse: give either IDs or --topic")
