"""messages.wait_for: the end of a message, for those that wait for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from functools import partial
from itertools import combinations
from typing import Any

import pytest
from psycopg import errors

from tests.server.postgres import Database
from tests.sql.queue import Background, Listener, Queue, Row

# messages.wait_for: a waiter is notified when its message ends, whatever happens at the same time.


@pytest.fixture(autouse=True)
def _unmarked(queue: Queue) -> Iterator[None]:
    """Lower the flag, so that each test sees its own waiter raise it."""
    queue.conn.execute("SELECT setval('messages.awaited_flag', 1)")
    yield
    queue.conn.execute("SELECT setval('messages.awaited_flag', 1)")


def wait_for(queue: Queue, message_id: int, **named: Any) -> Row:
    given = "".join(f", p_{name} => %({name})s" for name in named)
    return queue.row(f"SELECT * FROM messages.wait_for(%(id)s{given})", {"id": message_id, **named})


def finish(queue: Queue) -> None:
    """End the message that is running or ready, as success."""
    claimed = queue.claim()
    assert len(claimed) == 1
    assert queue.settle("complete", claimed, ['{"n": 1}']) == []


def is_awaited(queue: Queue) -> bool:
    """Whether ends check for waiters."""
    return bool(queue.value("SELECT pg_sequence_last_value('messages.awaited_flag') > 1"))


def waiters(queue: Queue) -> list[int]:
    return [row.message_id for row in queue.rows("SELECT message_id FROM messages.waiter ORDER BY message_id")]


def test_the_result_of_an_ended_message_is_returned_at_once(queue: Queue) -> None:
    published = queue.publish()
    finish(queue)

    ended = wait_for(queue, published)

    archived = queue.archived(published)
    assert tuple(ended) == ("success", {"n": 1}, None, 1, archived.archived_at)
    assert waiters(queue) == []


def test_a_message_that_has_not_ended_has_no_result_and_notifies_when_it_ends(
    queue: Queue, listen: Callable[..., Listener]
) -> None:
    listener = listen("settled")
    published = queue.publish()

    waiting = wait_for(queue, published)
    before = listener.received()
    finish(queue)

    assert tuple(waiting) == (None,) * 5
    assert (before, listener.received()) == ([], [str(published)])
    assert wait_for(queue, published).result == "success"


@pytest.mark.parametrize(
    ("end", "result"),
    [
        (lambda queue, message_id: queue.call("cancel", [message_id]), "cancelled"),
        (lambda queue, _: queue.settle("reject", queue.claim(), ["no"]), "rejected"),
        (lambda queue, _: queue.settle("fail", queue.claim(), ["boom"]), "failed"),
        (lambda queue, _: queue.settle("retry", queue.claim(), ["boom"]), "failed"),
        (lambda queue, _: (queue.claim(lock_duration="0 s"), queue.call("expire_locks")), "lock_expired"),
    ],
    ids=["cancelled", "rejected", "failed", "used up", "lock_expired"],
)
def test_every_end_sends_a_notification(queue: Queue, listen: Callable[..., Listener], end: Any, result: str) -> None:
    listener = listen("settled")
    published = queue.publish()
    wait_for(queue, published)

    end(queue, published)

    assert listener.received() == [str(published)]
    assert wait_for(queue, published).result == result


def test_an_attempt_that_does_not_end_the_message_sends_nothing(queue: Queue, listen: Callable[..., Listener]) -> None:
    listener = listen("settled")
    published = queue.publish(max_attempts=5)
    wait_for(queue, published)

    queue.settle("retry", queue.claim(), ["boom"])

    assert listener.received() == []
    assert waiters(queue) == [published]


def test_several_waiters_for_one_message_are_notified_together_by_one_row(
    queue: Queue, other: Queue, listen: Callable[..., Listener]
) -> None:
    listener = listen("settled")
    published = queue.publish()
    wait_for(queue, published, **{"for": "1 minute"})
    wait_for(other, published, **{"for": "1 hour"})

    remaining = queue.value("SELECT until - clock_timestamp() > interval '59 minutes' FROM messages.waiter")
    finish(queue)

    assert remaining is True
    assert listener.received() == [str(published)]
    assert waiters(queue) == []


def test_a_shorter_wait_does_not_end_a_longer_one(queue: Queue) -> None:
    published = queue.publish()
    wait_for(queue, published, **{"for": "1 hour"})
    wait_for(queue, published, **{"for": "1 ms"})

    assert queue.value("SELECT until - clock_timestamp() > interval '59 minutes' FROM messages.waiter") is True


def test_a_waiter_costs_publishers_nothing(queue: Queue) -> None:
    queue.conn.execute("SELECT setval('messages.policy_topic_bits', 1)")

    wait_for(queue, queue.publish())

    assert (is_awaited(queue), queue.call("has_policies")) == (True, False)


def test_an_unknown_message_leaves_no_row(queue: Queue) -> None:
    assert wait_for(queue, 4711) is None
    assert wait_for(queue, 2**62) is None
    assert waiters(queue) == []


def test_a_success_that_is_not_archived_sends_a_notification_too_and_leaves_no_row(
    queue: Queue, listen: Callable[..., Listener]
) -> None:
    listener = listen("settled")
    queue.policy(archive_success="none")
    published = queue.publish()
    wait_for(queue, published)

    finish(queue)

    assert listener.received() == [str(published)]
    assert wait_for(queue, published) is None


def test_a_redrive_is_another_message(queue: Queue, listen: Callable[..., Listener]) -> None:
    published = queue.publish()
    queue.settle("fail", queue.claim(), ["boom"])

    queue.rows("SELECT * FROM messages.redrive(%s)", [[published]])

    assert wait_for(queue, published).result == "failed"


@pytest.mark.parametrize("time", [None, "0 s", "-1 s", "2 hours"])
def test_an_invalid_timeout_is_refused_with_its_bounds(queue: Queue, time: Any) -> None:
    published = queue.publish()

    with pytest.raises(errors.InvalidParameterValue, match="p_for of wait_for is") as caught:
        wait_for(queue, published, **{"for": time})

    assert "1 ms to 1 hour" in str(caught.value.diag.message_hint)


# Concurrency


def test_a_call_during_the_end_waits_for_it_and_returns_the_result(
    queue: Queue, other: Queue, background: Background
) -> None:
    published = queue.publish()
    claimed = queue.claim()

    with queue.conn.transaction():
        queue.settle("complete", claimed)
        waiting = background.start_blocked(other, wait_for, other, published)

    assert waiting.result(timeout=60).result == "success"


def test_a_call_during_an_end_that_is_rolled_back_waits_on(
    queue: Queue, other: Queue, background: Background, listen: Callable[..., Listener]
) -> None:
    listener = listen("settled")
    published = queue.publish()
    queue.conn.autocommit = False
    queue.settle("complete", queue.claim())
    waiting = background.start_blocked(other, wait_for, other, published)

    queue.conn.rollback()
    queue.conn.autocommit = True

    assert waiting.result(timeout=60).result is None
    queue.call("cancel", [published])
    assert listener.received() == [str(published)]


def test_an_end_that_began_before_the_waiter_notifies_it(
    queue: Queue, other: Queue, background: Background, listen: Callable[..., Listener]
) -> None:
    """The settle runs already, and has not reached the message, when the waiter is stored.

    The flag was low when it began.
    """
    listener = listen("settled")
    first, second = queue.publish_many(2)
    claimed = queue.claim()
    blocker, waiter = Queue(other.conn), Queue(background.watcher)

    with blocker.conn.transaction():
        blocker.rows("SELECT FROM messages.message WHERE id = %s FOR UPDATE", [first])
        settle = background.start_blocked(queue, queue.settle, "complete", claimed)
        result = wait_for(waiter, second)

    assert settle.result(timeout=60) == []
    assert result.result is None
    assert listener.received() == [str(second)]


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
def test_an_end_with_a_snapshot_older_than_the_waiter_notifies_it(
    queue: Queue, other: Queue, listen: Callable[..., Listener], isolation: str
) -> None:
    listener = listen("settled")
    published = queue.publish()
    claimed = queue.claim()

    queue.conn.execute(f"BEGIN ISOLATION LEVEL {isolation}")
    queue.rows("SELECT FROM messages.message")
    wait_for(other, published)
    lost = queue.settle("complete", claimed)
    queue.conn.execute("COMMIT")

    assert lost == []
    assert listener.received() == [str(published)]


def test_claims_and_heartbeats_do_not_wait_for_an_open_waiter(queue: Queue, other: Queue) -> None:
    published = queue.publish()

    with other.conn.transaction():
        wait_for(other, published)
        queue.conn.execute("SET lock_timeout = '1s'")
        claimed = queue.claim()
        lost = queue.settle("heartbeat", claimed)
    queue.conn.execute("RESET lock_timeout")

    assert [c.id for c in claimed] == [published]
    assert lost == []


class Session:
    """A transaction that is run step by step; a step may have to wait for another transaction."""

    def __init__(self, queue: Queue, background: Background, *steps: Callable[[Queue], Any]) -> None:
        self.queue, self.background = queue, background
        self.steps = [lambda q: q.conn.execute("BEGIN"), *steps, lambda q: q.conn.execute("COMMIT")]
        self.taken: list[Future[Any]] = []

    def is_free(self) -> bool:
        """Whether the last step is done."""
        return not self.taken or self.taken[-1].done()

    def has_stopped(self) -> bool:
        """Whether the last step is done within a moment, or waits for a lock."""
        wait(self.taken, timeout=0.005)
        return self.is_free() or self.background.is_blocked(self.queue)

    def go(self, eventually: Callable[..., Any]) -> None:
        """Run the next step."""
        self.taken.append(self.background.start(self.steps.pop(0), self.queue))
        eventually(self.has_stopped, every_s=0)


def play(sessions: dict[str, Session], order: str, eventually: Callable[..., Any]) -> None:
    """Let the session of each letter run its next step in this order; while one is blocked the other continues."""
    left = list(order)
    while left:
        eventually(lambda: any(session.is_free() for session in sessions.values()))
        turn = next((name for name in left if sessions[name].is_free()), None)
        if turn is not None:
            left.remove(turn)
            sessions[turn].go(eventually)
    eventually(lambda: all(session.is_free() for session in sessions.values()))


def orders(ours: int, theirs: int) -> Iterator[str]:
    """Every order in which the steps of two sessions, w and e, can follow each other."""
    for places in combinations(range(ours + theirs), ours):
        yield "".join("w" if place in places else "e" for place in range(ours + theirs))


ENDS = {
    "complete": lambda queue, claimed: queue.settle("complete", claimed),
    "cancel": lambda queue, claimed: queue.call("cancel", [c.id for c in claimed]),
}


@pytest.mark.parametrize("how", sorted(ENDS))
def test_in_every_order_of_their_steps_the_waiter_gets_the_result_or_a_notification(
    database: Database,
    queue: Queue,
    background: Background,
    eventually: Callable[..., Any],
    listen: Callable[..., Listener],
    how: str,
) -> None:
    """Waiter: begin, store, commit. End: begin, prune (which lowers the flag if it may), end, commit."""
    waiting, ending = Queue(database.connect()), Queue(database.connect())
    listener = listen("settled")
    missed = []

    for order in orders(3, 4):
        queue.conn.execute("DELETE FROM messages.waiter; SELECT setval('messages.awaited_flag', 1)")
        published = queue.publish()
        claimed = queue.claim()
        waiter = Session(waiting, background, partial(wait_for, message_id=published))
        end = Session(ending, background, lambda q: q.call("prune"), partial(ENDS[how], claimed=claimed))
        play({"w": waiter, "e": end}, order, eventually)
        result, received = waiter.taken[1].result(), listener.received()
        if result.result is None and str(published) not in received:
            missed.append(order)

    assert missed == []


# messages.prune_waiters: deletes expired waiters, and lowers the flag with the last one.

WAIT = "SELECT FROM messages.wait_for(%s, %s)"


def test_a_waiter_is_deleted_when_its_time_is_over_and_not_before(queue: Queue) -> None:
    first, second = queue.publish_many(2)
    queue.rows(WAIT, [first, "1 minute"])
    queue.rows(WAIT, [second, "1 hour"])

    too_early = queue.call("prune_waiters")
    queue.later("61 seconds")
    in_time = queue.call("prune_waiters")

    assert (too_early, in_time) == (0, 1)
    assert waiters(queue) == [second]
    assert is_awaited(queue) is True


def test_the_flag_is_lowered_with_the_last_one(queue: Queue) -> None:
    queue.rows(WAIT, [queue.publish(), "1 minute"])

    queue.later("61 seconds")
    queue.call("prune")

    assert waiters(queue) == []
    assert is_awaited(queue) is False


def test_a_waiter_that_is_calling_again_is_skipped(queue: Queue, other: Queue) -> None:
    published = queue.publish()
    queue.rows(WAIT, [published, "1 ms"])

    with other.conn.transaction():
        other.rows(WAIT, [published, "1 hour"])
        queue.later("1 minute")
        forgotten = queue.call("prune_waiters")

    assert forgotten == 0
    assert waiters(queue) == [published]
    assert is_awaited(queue) is True


def test_a_transaction_with_an_old_snapshot_changes_nothing(queue: Queue) -> None:
    queue.rows(WAIT, [queue.publish(), "1 ms"])
    queue.later("1 minute")

    with queue.conn.transaction():
        queue.conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        forgotten = queue.call("prune_waiters")

    assert forgotten == 0
    assert is_awaited(queue) is True
