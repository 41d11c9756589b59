"""worker_concurrency: how many messages of a topic each worker may run at once."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg import errors

from tests.server.postgres import Database
from tests.sql.lock_timeouts import extend_timeout
from tests.sql.queue import Background, Queue, Row


def test_each_worker_gets_as_many_and_not_more(queue: Queue) -> None:
    queue.policy(worker_concurrency=2)
    queue.publish_many(9)

    claimed = [len(queue.claim(worker=worker)) for worker in ("a", "b", "a")]

    assert claimed == [2, 2, 0]


def test_all_claim_loops_of_a_daemon_share_the_slots_and_workers_over_http_do_not(queue: Queue) -> None:
    queue.policy(worker_concurrency=3)
    queue.publish_many(20)

    loops = [len(queue.claim(worker=worker, limit=2)) for worker in ("a/0", "a/1", "a/2")]
    over_http = [len(queue.claim(worker=worker)) for worker in ("http:shop/1", "http:shop/2")]

    assert (loops, over_http) == ([2, 1, 0], [3, 3])


def test_an_end_frees_a_slot_of_its_worker_only(queue: Queue) -> None:
    queue.policy(worker_concurrency=1)
    queue.publish_many(4)
    first, _ = queue.claim(worker="a"), queue.claim(worker="b")

    queue.settle("complete", first)

    assert [len(queue.claim(worker=worker)) for worker in ("b", "a")] == [0, 1]


def test_a_change_counts_for_the_next_claim_in_both_directions_and_ends_nothing_that_runs(queue: Queue) -> None:
    queue.policy(worker_concurrency=1)
    queue.publish_many(9)
    running = queue.claim()

    queue.policy(worker_concurrency=3)
    running += queue.claim()
    queue.policy(worker_concurrency=2)
    while_too_many = queue.claim()
    lost = queue.settle("complete", running[:2])

    assert (len(running), while_too_many, lost, len(queue.claim())) == (3, [], [], 1)


def test_it_bounds_a_topic_together_with_the_limit_of_all_workers(queue: Queue) -> None:
    queue.policy(max_concurrency=3, worker_concurrency=2)
    queue.publish_many(9)

    assert [len(queue.claim(worker=worker)) for worker in ("a", "b", "c")] == [2, 1, 0]


def test_zero_lifts_the_limit_of_the_defaults(queue: Queue) -> None:
    queue.policy("*", worker_concurrency=1)
    queue.policy("lifted", worker_concurrency=0)
    for topic in ("t", "lifted"):
        queue.publish_many(3, topic)

    assert [len(queue.claim(topic)) for topic in ("t", "lifted")] == [1, 3]


def test_it_holds_for_each_topic_of_a_pattern(queue: Queue) -> None:
    queue.policy("orders.*", worker_concurrency=2)
    for topic in ("orders.a", "orders.b"):
        queue.publish_many(5, topic)

    claimed = queue.claim("orders.*")

    assert sorted(each.topic for each in claimed) == ["orders.a"] * 2 + ["orders.b"] * 2


def test_messages_with_a_channel_count(queue: Queue) -> None:
    queue.policy(worker_concurrency=2)
    queue.publish_many(3, channel="c")
    queue.publish_many(3)

    assert (len(queue.claim()), queue.claim()) == (2, [])


def test_the_slots_of_a_worker_that_died_hinder_no_other_and_are_free_when_its_locks_expired(queue: Queue) -> None:
    queue.policy(worker_concurrency=1, lock_duration="10 s", max_attempts=2, lock_expired_delay="0")
    queue.publish_many(2)
    queue.claim(worker="dead")

    other = queue.claim(worker="new")
    queue.later("11 s")
    queue.call("expire_locks")

    assert (len(other), len(queue.claim(worker="dead"))) == (1, 1)


def test_two_claim_loops_of_a_worker_do_not_count_at_the_same_time(own_database: Database) -> None:
    queue, other, watcher = (Queue(own_database.connect()) for _ in range(3))
    background = Background(watcher.conn)
    extend_timeout(queue, "lock_topic", "250ms")
    queue.policy(worker_concurrency=1)
    queue.publish_many(2)

    with queue.conn.transaction():
        first = queue.claim(worker="a/0")
        second = background.start(lambda: other.claim(worker="a/1"))
        while not background.is_blocked(other):
            assert not second.done()

    assert (len(first), second.result(timeout=60)) == (1, [])


def test_the_limit_is_what_holds_messages_back(queue: Queue) -> None:
    queue.policy(worker_concurrency=1)
    queue.publish_many(2)

    first, _ = queue.claim_with_next_due()
    second, left = queue.claim_with_next_due()

    assert (len(first), second, left.held_back) == (1, [], {"topic t": None})


@pytest.mark.newest
def test_a_topic_without_it_is_claimed_as_before(queue: Queue) -> None:
    queue.publish_many(50, "free")
    claim = "SELECT count(*) FROM messages.claim('w', '{free}', 1)"
    before = queue.buffers(claim)

    queue.policy(worker_concurrency=1)

    assert queue.value("SELECT is_plain FROM messages.plain_policy('free')") is True
    assert queue.buffers(claim) <= before


# messages.explain


def explained(queue: Queue, message: int) -> list[Row]:
    return [each for each in queue.rows("SELECT * FROM messages.explain(%s)", [message]) if each.code != "behind"]


@pytest.fixture
def two_workers(queue: Queue) -> Queue:
    """Workers that handle the topic, one of them by a pattern."""
    queue.call("register_worker", "w1", "h", 7, "1", ["jobs.a"], 10)
    queue.call("register_worker", "w2", "h", 8, "1", ["jobs.*"], 10)
    return queue


def test_explain_names_the_workers_once_all_of_them_are_full(two_workers: Queue) -> None:
    queue = two_workers
    queue.policy("jobs.a", worker_concurrency=2)
    last = queue.publish_many(5, "jobs.a")[-1]

    queue.claim("jobs.a", worker="w1/0")
    while_one_is_free = explained(queue, last)
    queue.claim("jobs.a", worker="w2/1")
    (full,) = explained(queue, last)

    assert while_one_is_free == []
    assert full.code == "worker_full"
    assert full.reason == "topic jobs.a has reached its limit of 2 per worker; running on w1 (2), w2 (2)"
    assert full.detail == {"limit": 2, "workers": [{"worker": "w1", "limit": 2}, {"worker": "w2", "limit": 2}]}


def test_explain_names_the_pattern_that_sets_it(two_workers: Queue) -> None:
    queue = two_workers
    queue.policy("jobs.*", worker_concurrency=1)
    last = queue.publish_many(3, "jobs.a")[-1]
    for worker in ("w1", "w2"):
        queue.claim("jobs.a", worker=worker)

    (full,) = explained(queue, last)

    assert (full.code, full.detail["set_by"]) == ("worker_full", "jobs.*")
    assert "its limit of 1 per worker, which jobs.* sets; running on w1 (1), w2 (1)" in full.reason


def test_a_change_is_in_the_audit_log(queue: Queue) -> None:
    queue.policy(worker_concurrency=1)
    queue.policy(worker_concurrency=4)

    changed: dict[str, Any] = queue.rows("SELECT * FROM messages.audit ORDER BY id")[-1]._asdict()

    assert changed["topic"] == "t"
    assert "worker_concurrency" in str(changed)


# messages.scale_worker, of one topic


def test_one_worker_is_scaled_for_a_topic_and_back(two_workers: Queue) -> None:
    queue = two_workers
    queue.policy("jobs.a", worker_concurrency=2)
    queue.publish_many(20, "jobs.a")

    assert queue.call("scale_worker", "w1", 3, "jobs.a") is True
    claimed = [len(queue.claim("jobs.a", worker=worker)) for worker in ("w1/0", "w2/0")]
    queue.call("scale_worker", "w1", 1, "jobs.a")
    lowered = queue.claim("jobs.a", worker="w1/0")
    queue.call("scale_worker", "w1", topic="jobs.a")

    assert (claimed, lowered) == ([3, 2], [])
    assert queue.value("SELECT topic_concurrency FROM messages.worker WHERE name = 'w1'") == {}
    audited = [tuple(each) for each in queue.rows("SELECT topic, target, detail FROM messages.audit ORDER BY id")]
    assert audited[-3:] == [
        ("jobs.a", "w1", {"concurrency": 3}),
        ("jobs.a", "w1", {"concurrency": 1}),
        ("jobs.a", "w1", {}),
    ]


def test_what_shows_workers_and_explains_says_the_scaled_number(two_workers: Queue) -> None:
    queue = two_workers
    queue.policy("jobs.*", worker_concurrency=2)
    last = queue.publish_many(20, "jobs.a")[-1]
    queue.call("scale_worker", "w2", 4, "jobs.a")
    for worker in ("w1", "w2"):
        queue.claim("jobs.a", worker=worker)

    limits = queue.rows("SELECT topic_limits FROM messages.worker_state ORDER BY name")
    (full,) = explained(queue, last)

    assert [each.topic_limits for each in limits] == [{"jobs.a": 2}, {"jobs.*": 2, "jobs.a": 4}]
    assert full.reason.endswith("running on w1 (2), w2 (4)")


def test_a_worker_over_http_is_scaled_for_a_topic_too_and_nothing_stays_when_it_is_gone(queue: Queue) -> None:
    queue.call("touch_http_worker", "http:shop/w", "h", ["t"], 100)
    queue.policy(worker_concurrency=5)
    queue.publish_many(9)

    queue.call("scale_worker", "http:shop/w", 1, "t")
    claimed = queue.claim(worker="http:shop/w")
    queue.call("unregister_worker", "http:shop/w")

    assert (len(claimed), len(queue.claim(worker="http:shop/w"))) == (1, 4)


@pytest.mark.parametrize(
    ("topic", "said"), [("t", "topic t has no worker_concurrency"), ("other", "worker w does not handle topic other")]
)
def test_a_topic_that_cannot_be_scaled_is_refused(queue: Queue, topic: str, said: str) -> None:
    queue.call("register_worker", "w", "h", 7, "1", ["t"], 10)

    with pytest.raises(errors.InvalidParameterValue, match=said) as caught:
        queue.call("scale_worker", "w", 3, topic)

    assert caught.value.diag.message_hint
    assert queue.rows("SELECT FROM messages.audit WHERE action = 'scale_worker'") == []
