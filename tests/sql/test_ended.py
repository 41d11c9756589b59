"""The trigger ended: what a transaction ended is passed on when it commits, once, and so much of it. The rest: test_chains.py."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_until_the_commit_nothing_is_held_that_another_end_needs(queue: Queue, other: Queue) -> None:
    first, second = queue.publish("first"), queue.publish("second")
    last = queue.send(after=[first, second]).id
    other.conn.execute("SET lock_timeout = '1s'")

    with queue.conn.transaction():
        queue.settle("complete", queue.claim("first"))
        assert other.settle("complete", other.claim("second")) == []
        before = queue.message(last).available_at.year

    assert before == 9000
    assert [c.id for c in queue.claim()] == [last]


def test_one_end_releases_a_thousand_and_the_tick_goes_on(queue: Queue) -> None:
    first = queue.publish()
    queue.conn.execute(
        "SELECT count(*) FROM generate_series(1, 1100), LATERAL messages.publish('next', to_jsonb(generate_series), p_after => ARRAY[%s::bigint])",
        [first],
    )

    queue.settle("complete", queue.claim())
    at_once = queue.call("count_ready", ["next"])
    queue.call("follow_ends")

    assert 1000 <= at_once <= 1001
    assert queue.call("count_ready", ["next"]) == 1100


def test_a_long_chain_of_cancellations_ends_within_ticks(queue: Queue) -> None:
    last = queue.publish()
    chain = [last := queue.send(after=[last], after_failed="cancel").id for _ in range(30)]

    queue.conn.execute("SELECT set_config('messages.passed_on', '980', false)")
    queue.settle("fail", queue.claim(), ["boom"])
    at_once = queue.value("SELECT count(*) FROM messages.message_archive WHERE result = 'cancelled'")
    queue.conn.execute("SELECT set_config('messages.passed_on', '', false)")
    while queue.value("SELECT count(*) FROM messages.ending"):
        queue.call("follow_ends")

    assert 10 < at_once < 30
    assert {queue.archived(each).result for each in chain} == {"cancelled"}
