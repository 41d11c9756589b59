"""What other messages use costs a plain message nothing: the same functions are called, and no more rows are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import reduce
from operator import and_
from typing import Any

import pytest

from tests.sql.queue import Queue
from tests.sql.work import work

CALLS = "SELECT funcname::text, calls FROM pg_stat_xact_user_functions WHERE schemaname = 'messages' AND calls > 0"
CLAIM = "SELECT * FROM messages.claim('w', ARRAY['t'], 1)"


def debounced(queue: Queue) -> None:
    queue.send(topic="other", key="k", debounce="1 hour", max_delay="2 hours")


def throttled(queue: Queue) -> None:
    queue.send(topic="other", key="k", throttle="1 hour")


def with_its_own_policy(queue: Queue) -> None:
    own: dict[str, Any] = {"timeout": "1 min", "backoff": {"kind": "constant", "base": "1s"}, "retention": "1 day"}
    queue.publish("other", max_attempts=7, **own)


def waiting_for_an_event(queue: Queue) -> None:
    queue.publish("other")
    queue.settle("wait_for_event", queue.claim("other"), ["approved"], [1], ["1 hour"])


# What only the features themselves call.
FEATURES = {
    "debounce_message", "debounce_problem", "throttle_key", "is_throttled", "throttle_by_other", "check_own_policy",
    "load_events", "begin_wait", "signal", "count_events", "wait_for_event",
}  # fmt: skip
OTHERS = [debounced, throttled, with_its_own_policy]
# Once any message has steps, waits for an event or is waited for, each statement that ends messages looks for theirs.
SETTLES_LOOK = Counter({"announce_ends": 1, "notify_waiters": 1})


def calls_of_a_life(queue: Queue) -> Counter[str]:
    """Return how often a life calls each function at least: from time to time, a claim also looks for more."""
    return reduce(and_, (_calls_of_one(queue) for _ in range(4)))


def _calls_of_one(queue: Queue) -> Counter[str]:
    """Publish a message in both ways, fail one and complete it, and return how often each function was called."""
    queue.conn.execute("SET track_functions = 'all'")
    with queue.conn.transaction():
        # The server may not have reported those of earlier transactions yet.
        before = Counter(dict(queue.conn.execute(CALLS).fetchall()))
        queue.publish()
        queue.send()
        queue.settle("retry", queue.claim(limit=1), ["it failed"])
        queue.settle("complete", queue.claim(limit=1))
        return Counter(dict(queue.conn.execute(CALLS).fetchall())) - before


@pytest.mark.parametrize(
    ("other", "more"),
    [*((each, Counter[str]()) for each in OTHERS), (waiting_for_an_event, SETTLES_LOOK)],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_a_plain_message_calls_the_same_functions(
    own_queue: Queue, other: Callable[[Queue], None], more: Counter[str]
) -> None:
    own_queue.policy("t", max_attempts=3)
    without = calls_of_a_life(own_queue)
    other(own_queue)

    assert without.keys() & FEATURES == set()
    # Only what is more: a session that goes on has plans that call less.
    assert calls_of_a_life(own_queue) - without == more


@pytest.mark.newest
@pytest.mark.parametrize("other", OTHERS)
def test_a_plain_message_reads_no_row_of_others(own_queue: Queue, other: Callable[[Queue], None]) -> None:
    def rows() -> list[int]:
        published = work(own_queue, "INSERT INTO messages.message (topic, payload) VALUES ('t', '1') RETURNING id")
        claimed = work(own_queue, CLAIM)
        held = own_queue.row("SELECT id, claim_id FROM messages.message WHERE topic = 't'")
        settled = work(own_queue, "SELECT messages.complete(%s, %s)", [[held.id], [held.claim_id]])
        return [each.rows for each in (published, claimed, settled)]

    def least() -> list[int]:
        return [min(each) for each in zip(*(rows() for _ in range(4)), strict=True)]

    without = least()
    other(own_queue)

    assert all(now <= before for now, before in zip(least(), without, strict=True))
