"""The marks below which no claimable message is, and what moves them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.server.postgres import Database
from tests.sql.lock_timeouts import extend_timeout
from tests.sql.queue import Background, Listener, Queue

# messages.raise_low_water: marks below which claims need not read, and why no message is ever hidden below one.

CLAIM = "SELECT * FROM messages.claim('w', ARRAY['t'], 10)"


@pytest.fixture
def database(own_database: Database) -> Database:
    """These tests are about dead rows: only their own."""
    return own_database


def raise_marks(queue: Queue, slow: str = "0 s") -> int:
    """Run it at once, from the left edge.

    `slow` is the time from which an entry gets a mark: by default every entry does.
    """
    queue.conn.execute("UPDATE messages.low_water_mark SET next_run_at = 'epoch', left_edge_at = 'epoch'")
    marks: int = queue.value("SELECT messages.raise_low_water(%s)", [slow])
    return marks


def move_marks(queue: Queue) -> int:
    """Run it at once, while it is too early to read from the left edge again."""
    queue.conn.execute(
        "UPDATE messages.low_water_mark SET next_run_at = 'epoch', left_edge_at = clock_timestamp() + interval '1 hour'"
    )
    marks: int = queue.value("SELECT messages.raise_low_water('0 s')")
    return marks


def nobody_runs_it(queue: Queue) -> None:
    """Let the last run be two minutes ago."""
    queue.conn.execute("UPDATE messages.low_water_mark SET left_edge_at = clock_timestamp() - interval '2 minutes'")


def mark(queue: Queue) -> Any:
    return queue.value("SELECT at FROM messages.low_water WHERE topic = 't' AND priority = 5")


def no_left_edge(queue: Queue) -> None:
    """Make none of the next claims one that reads from the left edge."""
    queue.let_claim_ids(lambda claim_id: claim_id % 64 != 0, claims=40)


def work_off(queue: Queue, count: int) -> None:
    """Publish, claim and complete this many messages, which leaves as many dead index entries.

    They are some seconds old.
    """
    queue.publish_many(count, wait="-5 s")
    while claimed := queue.claim(limit=10_000):
        queue.settle("complete", claimed)


def test_behind_a_held_snapshot_a_claim_costs_a_few_pages_once_there_is_a_mark(
    queue: Queue, database: Database
) -> None:
    queue.publish_many(10, wait="1 hour")
    with database.held_snapshot():
        work_off(queue, 20_000)
        queue.publish_many(10, wait="1 hour")
        without_mark = queue.buffers(CLAIM)

        raise_marks(queue)
        assert raise_marks(queue) == 1
        no_left_edge(queue)
        with_mark = queue.buffers(CLAIM)
        next_due = queue.buffers("SELECT messages.next_due(ARRAY['t'])")
        renotify = queue.buffers("SELECT messages.renotify_stale()")
        before = mark(queue)
        queue.conn.execute("UPDATE messages.low_water_mark SET next_run_at = 'epoch', left_edge_at = 'infinity'")
        move = queue.buffers("SELECT messages.raise_low_water()")
        assert move_marks(queue) == 1

    assert without_mark > 1000
    assert with_mark < 150
    assert max(next_due, renotify, move) < 100
    assert before < mark(queue) < queue.value("SELECT min(available_at) FROM messages.message")


def test_an_entry_whose_first_message_is_found_quickly_needs_no_mark(queue: Queue) -> None:
    work_off(queue, 10)

    assert raise_marks(queue, "1 hour") == 0
    assert mark(queue) is None


def test_an_entry_that_is_fast_again_loses_its_mark(queue: Queue) -> None:
    work_off(queue, 10)
    raise_marks(queue)
    assert raise_marks(queue) == 1

    assert raise_marks(queue, "1 hour") == 0
    assert mark(queue) is None


def test_the_mark_is_at_the_oldest_waiting_message(queue: Queue) -> None:
    work_off(queue, 10)
    oldest = queue.publish(wait="-3 s")
    queue.publish(wait="-2 s")

    raise_marks(queue)
    raise_marks(queue)

    assert mark(queue) == queue.message(oldest).available_at


def test_only_a_run_from_the_left_edge_finds_what_is_below_a_mark_or_removes_it(queue: Queue) -> None:
    work_off(queue, 10)
    raise_marks(queue)
    raise_marks(queue)
    past = queue.publish(wait="-1 hour")

    move_marks(queue)
    assert mark(queue) > queue.message(past).available_at
    raise_marks(queue)
    assert mark(queue) == queue.message(past).available_at


def test_the_left_edge_is_read_at_most_a_twentieth_of_the_time(queue: Queue) -> None:
    raise_marks(queue)
    due = queue.row(
        "SELECT next_run_at <= clock_timestamp() AS run, left_edge_at > next_run_at AS wait "
        "FROM messages.low_water_mark"
    )
    assert (due.run, due.wait) == (True, True)

    queue.conn.execute("UPDATE messages.low_water_mark SET left_edge_at = clock_timestamp() + interval '1 hour'")
    queue.call("raise_low_water")

    left = queue.row(
        "SELECT left_edge_at > clock_timestamp() + interval '50 minutes' AS later FROM messages.low_water_mark"
    )
    assert left.later is True


def test_a_run_does_not_wait_for_a_settle_that_lowers_a_mark_and_leaves_it_low(queue: Queue, other: Queue) -> None:
    """The run does not see the message that was put back, and would move the mark beyond it."""
    published = queue.publish(wait="-5 s")
    claimed = queue.claim()
    raise_marks(queue)
    raise_marks(queue)

    with other.conn.transaction():
        other.settle("release", claimed)
        queue.conn.execute("SET lock_timeout = '10s'")
        move_marks(queue)

    no_left_edge(queue)
    assert [c.id for c in queue.claim()] == [published]


def test_a_message_that_commits_late_is_never_below_the_mark(queue: Queue, other: Queue) -> None:
    """Its available_at was set before the mark was taken, and its row becomes visible after.

    The mark must wait for its transaction.
    """
    work_off(queue, 10)

    with other.conn.transaction():
        late = other.publish(wait="-3 s")
        for _ in range(4):
            raise_marks(queue)
        before = mark(queue)

    no_left_edge(queue)
    assert before < queue.message(late).available_at
    assert [c.id for c in queue.claim()] == [late]


def test_a_message_that_commits_late_is_found_at_once_however_often_the_marks_were_raised(
    queue: Queue, other: Queue, eventually: Callable[..., Any]
) -> None:
    work_off(queue, 10)
    for _ in range(3):
        with other.conn.transaction():
            late = other.publish()
            # A mark is 100 ms in the past: by now one that ignored the open transaction would be above the message.
            overtaken = queue.value("SELECT clock_timestamp() + interval '150 ms'")
            eventually(lambda t=overtaken: queue.value("SELECT clock_timestamp() > %s", [t]))
            raise_marks(queue)
            raise_marks(queue)
        no_left_edge(queue)

        claimed = queue.claim()

        assert [c.id for c in claimed] == [late]
        queue.settle("complete", claimed)


def test_a_message_published_with_a_past_time_is_found_after_the_next_run_which_notifies(
    queue: Queue, listen: Callable[..., Listener]
) -> None:
    work_off(queue, 10)
    raise_marks(queue)
    raise_marks(queue)
    past = queue.publish(wait="-1 hour")
    no_left_edge(queue)
    assert queue.claim() == []  # below the mark
    listener = listen("new_message")
    queue.arm()

    raise_marks(queue)

    assert listener.received() == ["t"]
    assert mark(queue) == queue.message(past).available_at
    assert [c.id for c in queue.claim()] == [past]


def test_a_run_that_removes_a_mark_notifies_of_what_was_below_it(queue: Queue, listen: Callable[..., Listener]) -> None:
    work_off(queue, 10)
    raise_marks(queue)
    raise_marks(queue)
    queue.publish(wait="-1 hour")
    listener = listen("new_message")
    queue.arm()

    raise_marks(queue, "1 hour")

    assert mark(queue) is None
    assert listener.received() == ["t"]


def test_without_any_run_some_claims_find_it_too(queue: Queue) -> None:
    work_off(queue, 10)
    raise_marks(queue)
    raise_marks(queue)
    past = queue.publish(wait="-1 hour")
    no_left_edge(queue)

    above_the_mark = queue.claim()
    nobody_runs_it(queue)
    queue.let_claim_ids(lambda claim_id: claim_id % 64 == 0)
    from_the_left_edge = queue.claim()

    assert (above_the_mark, [c.id for c in from_the_left_edge]) == ([], [past])


def test_a_message_that_is_released_lowers_the_mark(queue: Queue) -> None:
    published = queue.publish(wait="-5 s")
    claimed = queue.claim()
    raise_marks(queue)
    raise_marks(queue)
    assert mark(queue) > queue.message(published).available_at

    queue.settle("release", claimed)
    no_left_edge(queue)

    assert [c.id for c in queue.claim()] == [published]


def test_a_message_that_is_retried_is_above_the_mark(queue: Queue) -> None:
    queue.policy(backoff={"kind": "none"})
    published = queue.publish(wait="-5 s", max_attempts=2)
    claimed = queue.claim()
    raise_marks(queue)
    raise_marks(queue)

    queue.settle("retry", claimed, ["boom"])
    no_left_edge(queue)

    assert [c.id for c in queue.claim()] == [published]


def test_a_redriven_message_is_above_the_mark(queue: Queue) -> None:
    died = queue.publish(wait="-5 s")
    queue.settle("fail", queue.claim(), ["boom"])
    raise_marks(queue)
    raise_marks(queue)

    queue.rows("SELECT * FROM messages.redrive(%s)", [[died]])
    no_left_edge(queue)

    assert len(queue.claim()) == 1


def test_every_priority_and_topic_has_its_own_mark(queue: Queue) -> None:
    for topic, priority in (("t", 5), ("t", 1), ("u", 5)):
        queue.publish(topic, priority=priority, wait="-5 s")
    queue.settle("complete", queue.claim("t", "u"))
    waiting = queue.publish("u", wait="-4 s")
    raise_marks(queue)

    assert raise_marks(queue) == 3

    assert queue.value("SELECT at FROM messages.low_water WHERE topic = 'u'") == queue.message(waiting).available_at
    assert queue.value("SELECT count(DISTINCT at) FROM messages.low_water WHERE topic = 't'") == 1


def test_while_one_call_runs_a_second_returns_at_once(queue: Queue, other: Queue) -> None:
    work_off(queue, 10)

    with queue.conn.transaction():
        raise_marks(queue)
        assert other.call("raise_low_water") == 0


# messages.lower_low_water, through release and retry: a mark is lowered without waiting for long. (That it is:
# test_return_attempts.py.)


@pytest.fixture
def held(queue: Queue) -> dict[str, list[Any]]:
    """Return two claimed messages of each of two topics, all of them below the mark of their topic."""
    for topic in "ab":
        queue.publish_many(2, topic, wait="-1 hour")
    claimed = queue.claim("a", "b")
    queue.conn.execute("UPDATE messages.low_water SET at = now()")
    return {topic: [row for row in claimed if row.topic == topic] for topic in "ab"}


def test_two_sessions_that_return_messages_in_opposite_order_never_deadlock(
    queue: Queue,
    other: Queue,
    third: Queue,
    background: Background,
    eventually: Callable[..., Any],
    held: dict[str, list[Any]],
) -> None:
    extend_timeout(queue, "lower_low_water", "200ms")

    with third.conn.transaction():
        third.conn.execute("SELECT FROM messages.low_water FOR UPDATE")
        one = background.start(queue.settle, "release", [held["a"][0], held["b"][0]])
        two = background.start(other.settle, "release", [held["b"][1], held["a"][1]])
        eventually(lambda: background.is_blocked(queue) and background.is_blocked(other))

    assert (one.result(timeout=60), two.result(timeout=60)) == ([], [])


def test_what_stays_below_a_mark_that_another_session_holds_is_found_after_the_next_run(
    queue: Queue, other: Queue, held: dict[str, list[Any]]
) -> None:
    with other.conn.transaction():
        other.conn.execute("SELECT FROM messages.low_water FOR UPDATE")
        queue.settle("release", held["a"])
    queue.conn.execute("UPDATE messages.low_water_mark SET next_run_at = 'epoch', left_edge_at = 'epoch'")
    queue.call("raise_low_water")

    assert [row.id for row in queue.claim("a")] == [row.id for row in held["a"]]
