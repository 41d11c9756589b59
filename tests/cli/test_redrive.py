"""`pgrouse redrive`."""

from __future__ import annotations

import pytest

from tests.cli.shell import Shell
from tests.cli.stage import die
from tests.sql.queue import Queue


def waiting(queue: Queue) -> list[int]:
    """Return the ancestors of the messages that wait, in the order in which they were put back."""
    return [row.redriven_from for row in queue.rows("SELECT redriven_from FROM messages.message ORDER BY id")]


def test_messages_are_put_back_by_their_ids(pgrouse: Shell, queue: Queue) -> None:
    first, second, third = die(queue, "a", "b", "c")

    ended = pgrouse("redrive", first, third)

    assert (ended.code, ended.err) == (0, "")
    assert [line.split(" is back as ")[0] for line in ended.out.splitlines()] == [str(first), str(third)]
    assert waiting(queue) == [first, third]
    assert second not in waiting(queue)


def test_json_pairs_each_with_its_new_message(pgrouse: Shell, queue: Queue) -> None:
    (dead,) = die(queue, "a")

    found = pgrouse("redrive", dead, "--json").object

    assert found == {"archived_id": dead, "message_id": queue.ids()[0]}


def test_filters_choose_together(pgrouse: Shell, queue: Queue) -> None:
    die(queue, "a", result="reject")
    (wanted,) = die(queue, "a")
    die(queue, "a", age="1 day")
    die(queue, "b")

    ended = pgrouse("redrive", "--topic", "a", "--result", "failed", "--since", "1h")

    assert (ended.code, ended.out) == (0, "put back 1 message\n")
    assert waiting(queue) == [wanted]


def test_a_limit_takes_the_oldest_first(pgrouse: Shell, queue: Queue) -> None:
    die(queue, "a")
    (old,) = die(queue, "a", age="1 hour")
    (older,) = die(queue, "a", age="2 hours")

    pgrouse("redrive", "--limit", "2")

    assert sorted(waiting(queue)) == sorted([old, older])


def test_all_are_put_back_in_as_many_batches_as_it_takes(pgrouse: Shell, queue: Queue) -> None:
    queue.publish_many(1200)
    for _ in range(12):
        claimed = queue.claim(limit=100)
        queue.settle("fail", claimed, ["boom"] * len(claimed))

    ended = pgrouse("redrive", "--all")

    assert (ended.code, ended.out) == (0, "put back 1,200 messages\n")
    assert len(queue.ids()) == 1200


def test_a_dry_run_only_says_what_it_would_do(pgrouse: Shell, queue: Queue) -> None:
    die(queue, "a", "b", "b")

    ended = pgrouse("redrive", "--all", "--dry-run")

    assert ended.out.splitlines()[-1] == "would put back 3 messages: run it again without --dry-run"
    assert [line.split()[:3] for line in ended.out.splitlines()[1:-1]] == [["a", "failed", "1"], ["b", "failed", "2"]]
    assert [(row["topic"], row["messages"]) for row in pgrouse("redrive", "--all", "--dry-run", "--json").objects] == [
        ("a", 1),
        ("b", 2),
    ]
    assert queue.ids() == []


def test_a_dead_message_is_put_back_once(pgrouse: Shell, queue: Queue) -> None:
    (dead,) = die(queue, "a")
    pgrouse("redrive", dead)

    ended = pgrouse("redrive", dead)

    assert (ended.code, ended.out) == (1, "")
    assert ended.err == "pgrouse: 1 of 1 ids: no dead message, or redriven before (`pgrouse dead list --redriven`)\n"
    assert pgrouse("redrive", "--all").out == "no dead message fits: nothing was put back\n"
    assert len(queue.ids()) == 1


@pytest.mark.parametrize("arguments", [["999"], ["1", "999"]])
def test_ids_that_are_not_dead_are_told(pgrouse: Shell, queue: Queue, arguments: list[str]) -> None:
    queue.publish()

    ended = pgrouse("redrive", *arguments)

    assert ended.code == 1
    assert ended.err.startswith(f"pgrouse: {len(arguments)} of {len(arguments)} ids: no dead message")


def test_one_whose_key_waits_again_stays_dead_and_the_others_do_not_wait_for_it(pgrouse: Shell, queue: Queue) -> None:
    stuck = queue.publish(key="k")
    queue.settle("fail", queue.claim(), ["boom"])
    (other,) = die(queue, "t")
    queue.publish(key="k")

    ended = pgrouse("redrive", "--all")

    assert (ended.code, ended.out) == (0, "put back 1 message\n")
    assert ended.err.startswith("pgrouse: 1 message stayed dead: a message with their key waits already")
    assert other in waiting(queue)
    assert pgrouse("redrive", stuck).code == 1
