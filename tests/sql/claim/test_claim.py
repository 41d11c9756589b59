"""messages.claim: which messages a worker gets, in which order."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import errors, sql

from tests.server.postgres import Database
from tests.sql.lock_timeouts import extend_timeout
from tests.sql.queue import Background, Queue

# messages.claim: which messages a claim locks, in which order, how many, and for how long.


def payloads(claimed: list[Any]) -> list[Any]:
    return [json.loads(c.payload) for c in claimed]


def test_a_claim_locks_the_message_for_its_worker(queue: Queue) -> None:
    published = queue.publish()

    (claimed,) = queue.claim(worker="host-1")

    row = queue.message(published)
    assert (row.claim_id, row.locked_by, row.attempts) == (claimed.claim_id, "host-1", 1)
    assert row.lock_expires_at - row.locked_at == timedelta(seconds=30)


def test_a_claim_returns_all_that_a_handler_needs(queue: Queue) -> None:
    queue.policy(timeout="90 s", lock_duration="2 minutes", max_attempts=4)
    published = queue.publish(
        channel="c",
        key="k",
        priority=2,
        payload={"n": 1},
        headers={"h": 1},
        state=sql.SQL("'[1]'::jsonb"),
        wait="-10 s",
    )

    (claimed,) = queue.claim()

    assert claimed[:13] == (
        *(published, claimed.claim_id, "t", "c", "k", 2, 1, 4, '{"n": 1}', None, '{"h": 1}', "[1]"),
        120.0,
    )
    assert claimed.timeout_s == 90.0
    assert 10 <= claimed.waited_s < 20


def test_a_claimed_message_is_not_claimed_again(queue: Queue, other: Queue) -> None:
    queue.publish()
    queue.claim()

    assert other.claim() == []


def test_all_messages_of_one_claim_have_its_number_and_the_next_claim_has_another(queue: Queue) -> None:
    queue.publish_many(3)

    first = queue.claim(limit=2)
    second = queue.claim(limit=2)

    assert len({c.claim_id for c in first}) == 1
    assert second[0].claim_id != first[0].claim_id


def test_only_the_given_topics_are_claimed(queue: Queue) -> None:
    for topic in ("a", "ab", "b", "c", "d"):
        queue.publish(topic)

    assert [c.topic for c in queue.claim("b", "d", "unknown", "a")] == ["a", "b", "d"]


@pytest.mark.parametrize("limit", [1, 2, 7])
def test_a_claim_takes_at_most_its_limit(queue: Queue, limit: int) -> None:
    queue.publish_many(10)

    assert len(queue.claim(limit=limit)) == limit


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_of_zero_claims_nothing(queue: Queue, limit: int) -> None:
    queue.publish()

    assert queue.claim(limit=limit) == []


def test_a_claim_takes_at_most_10000(queue: Queue) -> None:
    queue.publish_many(10_001)

    assert len(queue.claim(limit=1_000_000)) == 10_000


def test_a_claim_without_topics_returns_nothing(queue: Queue) -> None:
    queue.publish()

    assert queue.rows("SELECT * FROM messages.claim('w', '{}', 10)") == []


@pytest.mark.parametrize("arguments", ["NULL, ARRAY['t'], 1", "'w', NULL, 1", "'w', ARRAY['t'], NULL"])
def test_a_claim_without_worker_topics_or_limit_is_refused(queue: Queue, arguments: str) -> None:
    with pytest.raises(errors.NullValueNotAllowed, match="claim needs a worker, its topics and a limit"):
        queue.rows(f"SELECT * FROM messages.claim({arguments})")


@pytest.mark.parametrize("lock_duration", ["-1 s", "8 days", "9000 years"])
def test_a_lock_duration_beyond_the_maximum_is_refused(queue: Queue, lock_duration: str) -> None:
    queue.publish()

    with pytest.raises(errors.InvalidParameterValue, match="lock_duration of a claim is") as caught:
        queue.claim(lock_duration=lock_duration)

    assert caught.value.diag.message_hint == "use an interval from 0 to 7 days"


# Order


def test_the_longest_available_message_is_first_whatever_its_position_in_the_table(queue: Queue) -> None:
    waits = ["-1 s", "-5 s", "-3 s", "-4 s", "-2 s"]
    for wait in waits:
        queue.publish(wait=wait, payload={"wait": wait})

    assert [p["wait"] for p in payloads(queue.claim())] == ["-5 s", "-4 s", "-3 s", "-2 s", "-1 s"]


def test_the_limit_takes_the_longest_available(queue: Queue) -> None:
    for wait in ("-1 s", "-5 s", "-3 s"):
        queue.publish(wait=wait, payload={"wait": wait})

    assert [p["wait"] for p in payloads(queue.claim(limit=2))] == ["-5 s", "-3 s"]


def test_of_two_with_the_same_available_at_the_first_published_is_first(queue: Queue) -> None:
    published = queue.publish_many(20, available_at="2026-01-01")

    assert [c.id for c in queue.claim()] == published


def test_lower_priority_numbers_go_before_longer_waits(queue: Queue) -> None:
    for priority, wait in ((5, "-9 s"), (9, "-10 s"), (0, "-1 s"), (5, "-8 s"), (0, "-2 s")):
        queue.publish(priority=priority, wait=wait)

    assert [(c.priority, round(c.waited_s)) for c in queue.claim()] == [(0, 2), (0, 1), (5, 9), (5, 8), (9, 10)]


def test_a_low_priority_starts_only_when_all_higher_ones_are_claimed(queue: Queue) -> None:
    queue.publish_many(3, priority=4)
    queue.publish_many(3, priority=6)

    assert [c.priority for c in queue.claim(limit=4)] == [4, 4, 4, 6]


def test_a_retried_message_is_ordered_by_its_new_available_at(queue: Queue) -> None:
    early = queue.publish(wait="-10 s", max_attempts=2)
    queue.settle("retry", queue.claim(), ["again"], [timedelta(0)])
    late = queue.publish(wait="-5 s")

    assert [c.id for c in queue.claim()] == [late, early]


# Time


def test_a_delayed_message_is_not_claimed_before_it_is_due(queue: Queue) -> None:
    queue.publish(wait="1 minute")
    assert queue.claim() == []

    queue.later("59 s")
    assert queue.claim() == []

    queue.later("1 s")
    assert len(queue.claim()) == 1


def test_delayed_messages_hide_no_other_messages(queue: Queue) -> None:
    queue.publish_many(50, wait="1 hour")
    ready = [queue.publish(priority=9), queue.publish(channel="c")]

    assert sorted(c.id for c in queue.claim(limit=5)) == ready


def test_an_expired_lock_can_be_claimed_only_after_expire_locks_removed_it(queue: Queue) -> None:
    """A claim never reads locked rows: expire_locks ends the attempt first, so that it is recorded."""
    published = queue.publish(max_attempts=2)
    queue.claim()
    queue.later("1 hour")
    assert queue.claim() == []

    queue.call("expire_locks")
    queue.later("1 hour")

    assert [(c.id, c.attempt) for c in queue.claim()] == [(published, 2)]


def test_the_lock_lasts_for_the_lock_duration_of_the_topic(queue: Queue) -> None:
    queue.policy("*", lock_duration="10 s")
    queue.policy("slow", lock_duration="1 hour")
    queue.publish("slow")
    queue.publish("t")

    assert {c.topic: c.lock_duration_s for c in queue.claim("slow", "t")} == {"slow": 3600, "t": 10}


def test_the_callers_lock_duration_wins_over_the_topics(queue: Queue) -> None:
    queue.policy(lock_duration="1 hour")
    published = queue.publish()

    (claimed,) = queue.claim(lock_duration="5 s")

    row = queue.message(published)
    assert (claimed.lock_duration_s, row.lock_expires_at - row.locked_at) == (5, timedelta(seconds=5))


# How much


def test_slots_bound_each_topic_by_its_own_number(queue: Queue) -> None:
    for topic in ("a", "b", "c"):
        queue.publish_many(5, topic)

    claimed = queue.claim("a", "b", "c", slots=[1, 0, None])

    assert Counter(c.topic for c in claimed) == {"a": 1, "c": 5}


def test_slots_count_messages_with_and_without_a_channel_together(queue: Queue) -> None:
    queue.publish_many(5, "a")
    queue.publish_many(5, "a", channel="c")

    assert len(queue.claim("a", slots=[3])) == 3


def test_what_would_wait_in_the_worker_is_left_where_a_topic_or_its_channels_have_a_limit(queue: Queue) -> None:
    queue.policy("limited", max_concurrency=8)
    queue.policy("ordered", ordered=True)
    for topic in ("free", "limited"):
        queue.publish_many(9, topic)
    for channel in "abcdefghi":
        queue.publish("ordered", channel=channel)

    claimed = queue.claim("free", "limited", "ordered", slots=[7, 7, 7], prefetch=[4, 4, 4])

    assert Counter(c.topic for c in claimed) == {"free": 7, "limited": 3, "ordered": 3}


def test_what_would_wait_of_a_topic_without_slots_of_its_own_counts_from_the_limit_of_the_claim(queue: Queue) -> None:
    queue.policy("t", dequeue_rate=1000)
    queue.publish_many(9)

    assert queue.claim(limit=5, prefetch=[5]) == []
    assert len(queue.claim(limit=5, prefetch=[3])) == 2


def test_a_batch_ends_with_the_message_that_reaches_the_byte_limit(queue: Queue) -> None:
    queue.publish_many(5, payload=sql.SQL("to_jsonb(md5(n::text) || repeat('x', 1000))"))

    assert len(queue.claim(bytes=2500)) == 3


def test_a_message_larger_than_the_byte_limit_is_claimed_alone(queue: Queue) -> None:
    queue.publish_many(2, body=sql.SQL("decode(repeat('00', 5000), 'hex')"))

    assert len(queue.claim(bytes=10)) == 1
    assert len(queue.claim(bytes=10)) == 1


@pytest.mark.parametrize("by", ["channel", "priority"])
def test_the_byte_limit_applies_to_all_channels_and_priorities_together(queue: Queue, by: str) -> None:
    columns: dict[str, Any] = {by: sql.SQL("n::text") if by == "channel" else sql.SQL("n")}
    queue.publish_many(9, body=sql.SQL("decode(repeat('00', 1000), 'hex')"), **columns)

    assert len(queue.claim(bytes=2500)) == 3


def test_messages_beyond_the_byte_limit_are_claimed_next(queue: Queue) -> None:
    published = queue.publish_many(5, body=sql.SQL("decode(repeat('00', 1000), 'hex')"))

    claimed = queue.claim(bytes=2500) + queue.claim(bytes=2500)

    assert [c.id for c in claimed] == published


# Round robin


def test_topics_take_turns_when_each_claim_names_the_last_topic_of_the_previous_one(queue: Queue) -> None:
    for topic in ("a", "b", "c"):
        queue.publish_many(3, topic)

    turns, after = "", None
    while claimed := queue.claim("a", "b", "c", limit=1, after_topic=after):
        after = claimed[-1].topic
        turns += after

    assert turns == "abcabcabc"


@pytest.mark.parametrize(
    ("after", "expected"), [("a", "bca"), ("b", "cab"), ("c", "abc"), ("0", "abc"), ("z", "abc"), ("bb", "cab")]
)
def test_the_walk_over_topics_visits_each_once_and_ends_where_it_began(queue: Queue, after: str, expected: str) -> None:
    for topic in ("a", "b", "c"):
        queue.publish(topic)

    assert "".join(c.topic for c in queue.claim("a", "b", "c", "z", after_topic=after)) == expected


def test_channels_share_a_claim_however_many_messages_one_of_them_has(queue: Queue) -> None:
    queue.publish_many(1000, channel="flood")
    for channel in ("a", "m", "z"):
        queue.publish(channel=channel)

    claimed = Counter(c.channel for c in queue.claim(limit=80))

    assert claimed == {"a": 1, "flood": 40, "m": 1, "z": 1}


def test_channels_take_turns_when_each_claim_names_the_last_channel_of_the_previous_one(queue: Queue) -> None:
    for channel in ("a", "b", "c"):
        queue.publish_many(2, channel=channel)

    turns, after = "", None
    while claimed := queue.claim(limit=1, after_channels=after):
        after = {"t": claimed[-1].channel}
        turns += claimed[-1].channel

    assert turns == "abcabc"


def test_within_a_channel_lower_priority_numbers_then_longer_waits_go_first(queue: Queue) -> None:
    for priority, wait in ((5, "-1 s"), (5, "-3 s"), (1, "-2 s")):
        queue.publish(channel="c", priority=priority, wait=wait)

    assert [(c.priority, round(c.waited_s)) for c in queue.claim()] == [(1, 2), (5, 3), (5, 1)]


@pytest.mark.parametrize(("remainder", "first"), [(0, None), (1, "c")])
def test_half_of_the_claims_begin_with_channels_and_half_with_messages_without_one(
    queue: Queue, remainder: int, first: str | None
) -> None:
    queue.publish_many(10, channel="c")
    queue.publish_many(10)
    queue.let_claim_ids(lambda claim_id: claim_id % 2 == remainder)

    assert queue.claim(limit=1)[0].channel == first


# Attempts


def test_a_message_whose_attempts_are_used_up_is_archived_instead_of_run(queue: Queue) -> None:
    published = queue.publish(max_attempts=2)
    queue.settle("retry", queue.claim(), ["boom"], [timedelta(0)])
    queue.conn.execute("UPDATE messages.message SET max_attempts = 1")

    assert queue.claim() == []

    archived = queue.archived(published)
    assert (archived.result, archived.attempts, archived.error) == (
        *("failed", 1),
        "max_attempts: all attempts were used up before this claim",
    )


def test_a_lowered_limit_of_the_topic_applies_to_waiting_messages(queue: Queue) -> None:
    queue.policy(max_attempts=5)
    for channel in (None, "c"):
        queue.publish(channel=channel)
    queue.settle("retry", queue.claim(), ["boom"] * 2, [timedelta(0)] * 2)
    queue.policy(max_attempts=1)
    fresh = queue.publish()

    assert [c.id for c in queue.claim()] == [fresh]
    assert queue.ids() == [fresh]


def test_used_up_messages_hide_no_other(queue: Queue) -> None:
    queue.policy(max_attempts=5)
    queue.publish_many(10, wait="-1 hour")
    queue.settle("retry", queue.claim(), ["boom"] * 10, [timedelta(hours=-1)] * 10)
    queue.policy(max_attempts=1)
    fresh = queue.publish()

    while queue.call("next_due", ["t"]) is not None and not (claimed := queue.claim(limit=3)):
        pass

    assert [c.id for c in claimed] == [fresh]


@pytest.mark.parametrize("limit", [0, None])
def test_a_limit_of_0_or_null_by_default_is_no_limit(queue: Queue, limit: int | None) -> None:
    queue.policy("*", max_attempts=limit)
    queue.publish()
    for attempt in range(1, 6):
        (claimed,) = queue.claim()
        assert (claimed.attempt, claimed.max_attempts) == (attempt, None)
        queue.settle("retry", [claimed], ["boom"], [timedelta(0)])


@pytest.mark.parametrize(
    ("message", "topic", "default", "effective"),
    [(2, 3, 4, 2), (None, 3, 4, 3), (None, None, 4, 4), (0, 3, 4, None), (None, 0, 4, None)],
)
def test_the_messages_own_limit_wins_over_the_topics_and_that_over_the_default(
    queue: Queue, message: int | None, topic: int | None, default: int, effective: int | None
) -> None:
    queue.policy("*", max_attempts=default)
    queue.policy("t", max_attempts=topic)
    queue.publish(max_attempts=message)

    assert queue.claim_one().max_attempts == effective


# Concurrent claims


def test_a_row_that_another_claim_is_locking_is_skipped_not_waited_for(queue: Queue, other: Queue) -> None:
    first, second = queue.publish_many(2)

    with queue.conn.transaction():
        taken = queue.claim(limit=1)
        rest = other.claim()

    assert [[c.id for c in taken], [c.id for c in rest]] == [[first], [second]]


def test_a_claim_that_is_rolled_back_locks_nothing(queue: Queue, other: Queue) -> None:
    published = queue.publish()

    with queue.conn.transaction(force_rollback=True):
        queue.claim()

    assert [(c.id, c.attempt) for c in other.claim()] == [(published, 1)]


def test_a_message_that_changes_during_the_claim_is_returned_as_changed(queue: Queue, other: Queue) -> None:
    moved, stays = queue.publish_many(2)

    with other.conn.transaction():
        other.conn.execute("UPDATE messages.message SET available_at = now() + interval '1 day' WHERE id = %s", [moved])
        assert [c.id for c in queue.claim()] == [stays]

    assert queue.claim() == []


@pytest.mark.parametrize(("attempts", "waits"), [(1, "on"), (2, "off")])
def test_a_claim_that_must_be_durable_waits_for_the_disk_whatever_its_caller_set(
    database: Database, attempts: int, waits: str
) -> None:
    queue = Queue(database.connect(options="-c synchronous_commit=on"))
    queue.publish(max_attempts=attempts)

    with queue.conn.transaction():
        queue.conn.execute("SET LOCAL synchronous_commit = off")
        assert len(queue.claim()) == 1
        assert queue.value("SHOW synchronous_commit") == waits

    assert queue.value("SHOW synchronous_commit") == "on"


def test_claimers_on_eight_connections_never_share_a_message(queue: Queue, database: Database) -> None:
    published = queue.publish_many(2000)
    queue.publish_many(500, channel=sql.SQL("(n % 7)::text"))

    def drain(worker: str) -> list[int]:
        mine = Queue(database.connect())
        got: list[int] = []
        while claimed := mine.claim(worker=worker, limit=13):
            got += [c.id for c in claimed]
        return got

    with ThreadPoolExecutor(8) as threads:
        got = [message_id for ids in threads.map(drain, map(str, range(8))) for message_id in ids]

    assert len(got) == len(set(got)) == 2500
    assert set(published) < set(got)
    assert queue.value("SELECT count(*) FROM messages.message WHERE attempts = 1 AND claim_id IS NOT NULL") == 2500


def test_first_claims_of_several_topics_in_opposite_order_never_deadlock(
    queue: Queue, other: Queue, background: Background, eventually: Any
) -> None:
    for topic in ("a", "b"):
        queue.publish_many(2, topic)

    with queue.conn.transaction():
        queue.claim("a", limit=1)
        with other.conn.transaction():
            other.claim("b", limit=1)
            opposite = background.start(other.claim, "a", limit=1)
            eventually(lambda: opposite.done() or background.is_blocked(other))
            assert len(queue.claim("b", limit=1)) == 1
            assert len(opposite.result(timeout=60)) == 1


@pytest.mark.parametrize("isolation", [psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE])
def test_a_claim_works_at_every_isolation_level(queue: Queue, isolation: psycopg.IsolationLevel) -> None:
    queue.publish()
    queue.conn.isolation_level = isolation

    with queue.conn.transaction():
        assert len(queue.claim()) == 1


# messages.archive_unclaimable: a claim archives messages that it must not return.


@pytest.mark.parametrize("channel", [None, "c"])
@pytest.mark.parametrize("attempts", [0, 1])
def test_an_expired_message_is_archived_as_expired_without_counting_an_attempt(
    queue: Queue, channel: str | None, attempts: int
) -> None:
    gone = queue.publish(expires_at="2026-01-01", channel=channel, max_attempts=attempts, attempts=attempts)
    stays = queue.publish(expires_at="2900-01-01", channel=channel)

    assert [c.id for c in queue.claim(worker="me")] == [stays]

    archived = queue.archived(gone)
    assert (archived.result, archived.attempts, archived.handled_by) == ("expired", attempts, None)
    assert archived.error == "expired: it was not processed within its time to live"


@pytest.mark.parametrize("channel", [None, "c"])
def test_a_message_without_attempts_left_is_archived_as_failed(queue: Queue, channel: str | None) -> None:
    gone = queue.publish(max_attempts=1, channel=channel)
    queue.conn.execute("UPDATE messages.message SET attempts = 1")

    assert queue.claim(worker="me") == []

    archived = queue.archived(gone)
    assert (archived.result, archived.attempts, archived.handled_by) == ("failed", 1, "me")
    assert archived.error == "max_attempts: all attempts were used up before this claim"


def test_the_depth_is_lowered_by_the_archived_messages(queue: Queue) -> None:
    queue.policy(max_depth=2)
    queue.publish_many(2, expires_at="2026-01-01")

    queue.claim()

    assert queue.depth() == 0


def test_it_archives_without_waiting_while_another_session_holds_the_depth_counter(queue: Queue, other: Queue) -> None:
    """A publisher holds the counter until it commits.

    This claim may hold the lock of a limited topic that other claims wait for.
    """
    queue.policy(max_depth=10)
    published = queue.publish(expires_at="2026-01-01")
    other.conn.execute("SET lock_timeout = '2s'")
    with queue.conn.transaction():
        queue.publish()

        assert other.claim() == []
        assert queue.archived(published).result == "expired"

    assert len(other.claim()) == queue.depth() == 1


def test_a_claim_that_archives_and_a_settle_in_a_claim_transaction_do_not_wait_for_each_other(
    own_database: Database,
) -> None:
    queue, other, watcher = (Queue(own_database.connect()) for _ in range(3))
    background = Background(watcher.conn)
    extend_timeout(queue, "lock_topic", "250ms")
    queue.policy(max_depth=100, max_concurrency=2)
    queue.publish()
    held = queue.claim()
    queue.publish(expires_at="2026-01-01")

    with other.conn.transaction():
        other.row("SELECT messages.topic_slots(messages.claim_policy('t', messages.now()), 'w', 1)")
        with queue.conn.transaction():
            queue.settle("complete", held)
            settling = background.start(queue.claim)
            while not background.is_blocked(queue):
                assert not settling.done()

            assert other.claim() == []
            other.conn.execute("COMMIT")
            settling.result(timeout=60)


# messages.count_ready: how many messages a claim could take.


@pytest.mark.parametrize("channel", [None, "c"])
def test_it_counts_messages_that_are_not_locked_not_delayed_and_not_expired(queue: Queue, channel: str | None) -> None:
    queue.publish_many(5, channel=channel)
    queue.publish(channel=channel, wait="1 hour")
    queue.publish(channel=channel, expires_at="2000-01-01")
    queue.claim(limit=2)

    assert queue.call("count_ready", ["t"]) == 3


def test_it_counts_the_given_topics(queue: Queue) -> None:
    for topic in ("a", "b", "c"):
        queue.publish(topic)

    assert queue.call("count_ready", ["a", "c", "absent"]) == 2
