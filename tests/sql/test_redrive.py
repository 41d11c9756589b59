"""messages.redrive: a dead message is put back, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from psycopg import sql

from tests.sql.queue import Background, Ear, Queue

REDRIVEN = "SELECT * FROM messages.redrive(%s)"


def dead(queue: Queue, topic: str = "t", **columns: Any) -> int:
    published = queue.publish(topic, **columns)
    queue.settle("fail", queue.claim(topic), ["boom"])
    return published


def redrive(queue: Queue, *ids: int) -> dict[int, int]:
    """Return the new message's id by the dead one's."""
    return {row.archived_id: row.message_id for row in queue.rows(REDRIVEN, [list(ids)])}


def test_a_dead_message_becomes_a_new_one_that_knows_its_ancestor(queue: Queue) -> None:
    died = dead(queue)

    put_back = redrive(queue, died)

    (claimed,) = queue.claim()
    assert put_back == {died: claimed.id}
    assert queue.message(claimed.id).redriven_from == died
    assert claimed.attempt == 1


def test_the_new_message_has_everything_that_described_the_dead_one(queue: Queue) -> None:
    content: dict[str, Any] = {
        "channel": "c",
        "key": "k",
        "priority": 3,
        "payload": {"n": 1},
        "headers": {"h": 1},
        "max_attempts": 7,
    }
    died = dead(queue, **content, state=sql.SQL("'[1]'::jsonb"))

    new = queue.message(redrive(queue, died)[died])

    assert {c: getattr(new, c) for c in content} == content
    assert (new.state, new.attempts, new.history) == ([1], 0, None)


def test_the_archive_row_of_a_redriven_message_stays_as_it_is(queue: Queue) -> None:
    died = dead(queue)
    before = queue.archived(died)

    redrive(queue, died)

    assert queue.archived(died) == before


@pytest.mark.parametrize(("settle", "arguments"), [("reject", (["x"],)), ("fail", (["x"],))])
def test_every_kind_of_dead_message_can_be_put_back(queue: Queue, settle: str, arguments: Any) -> None:
    published = queue.publish()
    queue.settle(settle, queue.claim(), *arguments)

    assert list(redrive(queue, published)) == [published]


def test_an_expired_lock_can_be_put_back(queue: Queue) -> None:
    published = queue.publish()
    queue.claim()
    queue.later("1 hour")
    queue.call("expire_locks")

    assert list(redrive(queue, published)) == [published]


def test_what_succeeded_or_was_cancelled_or_still_lives_is_not_put_back(queue: Queue) -> None:
    succeeded = queue.publish()
    queue.settle("complete", queue.claim())
    cancelled, running, waiting = queue.publish_many(3)
    queue.call("cancel", [cancelled])
    queue.claim(limit=1)

    assert redrive(queue, succeeded, cancelled, running, waiting, 4711) == {}


@pytest.mark.parametrize("ids", [[], None])
def test_nothing_is_put_back_for_no_ids(queue: Queue, ids: Any) -> None:
    assert queue.rows(REDRIVEN, [ids]) == []


def test_a_message_is_put_back_once(queue: Queue) -> None:
    died = dead(queue)
    redrive(queue, died)

    assert redrive(queue, died) == {}
    assert len(queue.ids()) == 1


def test_a_message_named_twice_is_put_back_once(queue: Queue) -> None:
    died = dead(queue)

    assert list(redrive(queue, died, died)) == [died]
    assert len(queue.ids()) == 1


def test_of_two_who_put_it_back_at_once_the_second_waits_and_does_nothing(
    queue: Queue, other: Queue, background: Background, eventually: Callable[..., Any]
) -> None:
    died = dead(queue)

    with queue.conn.transaction():
        first = redrive(queue, died)
        second = background.start(redrive, other, died)
        eventually(lambda: background.is_blocked(other))

    assert (list(first), second.result(timeout=5)) == ([died], {})
    assert len(queue.ids()) == 1


def test_when_the_first_of_two_is_rolled_back_the_second_puts_it_back(
    queue: Queue, other: Queue, background: Background, eventually: Callable[..., Any]
) -> None:
    died = dead(queue)

    with queue.conn.transaction(force_rollback=True):
        redrive(queue, died)
        second = background.start(redrive, other, died)
        eventually(lambda: background.is_blocked(other))

    assert list(second.result(timeout=5)) == [died]
    assert len(queue.ids()) == 1


def test_a_redriven_message_that_dies_again_can_be_put_back_again(queue: Queue) -> None:
    first = dead(queue)
    second = redrive(queue, first)[first]
    queue.settle("fail", queue.claim(), ["boom again"])

    third = redrive(queue, first, second)

    assert list(third) == [second]
    assert queue.message(third[second]).redriven_from == second


def test_a_message_whose_key_is_ready_again_is_left_dead(queue: Queue) -> None:
    died = dead(queue, key="k")
    newer = queue.publish(key="k")
    other = dead(queue, "u", key="k")

    assert list(redrive(queue, died, other)) == [other]
    assert queue.message(newer) is not None


def test_a_message_left_dead_for_its_key_can_be_put_back_when_the_key_is_free(queue: Queue) -> None:
    died = dead(queue, key="k")
    queue.publish(key="k")
    redrive(queue, died)
    queue.settle("complete", queue.claim())

    assert list(redrive(queue, died)) == [died]


def test_of_several_dead_with_one_key_the_newest_is_put_back(queue: Queue) -> None:
    oldest, older, newest = (dead(queue, key="k") for _ in range(3))
    stranger = dead(queue)

    assert sorted(redrive(queue, oldest, newest, older, stranger)) == [newest, stranger]


def test_a_redrive_rings_like_every_publish(queue: Queue, listen: Callable[..., Ear]) -> None:
    died = dead(queue)
    ear = listen("new_message")
    queue.arm()

    put_back = redrive(queue, died)

    assert ear.heard() == [str(put_back[died])]


def test_the_log_says_who_put_back_what_and_when(queue: Queue) -> None:
    died = dead(queue)

    put_back = redrive(queue, died)

    log = queue.row("SELECT * FROM messages.redrive_log")
    assert (log.archived_id, log.message_id, log.redriven_by) == (died, put_back[died], "postgres")
