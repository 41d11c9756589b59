"""Attempts that are returned, and strict locks."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.sql.queue import Background, Queue

# messages.return_attempts, through release and defer: the attempt is returned, and a key stays unique among ready
# messages.

give_back = pytest.mark.parametrize("settle", ["release", "defer"])


@give_back
def test_the_attempt_is_returned(queue: Queue, settle: str) -> None:
    published = queue.publish(max_attempts=2)
    queue.settle("retry", queue.claim(), ["boom"], [timedelta(0)])

    lost = queue.settle(settle, queue.claim())

    row = queue.message(published)
    assert (lost, row.attempts) == ([], 1)
    assert (row.claim_id, row.locked_by, row.locked_at, row.lock_expires_at) == (None, None, None, None)


@give_back
def test_a_stale_claim_changes_nothing_and_is_reported_as_lost(queue: Queue, settle: str) -> None:
    published = queue.publish()
    stale = queue.claim()
    queue.settle("release", stale)
    current = queue.claim()
    before = queue.message(published)

    assert queue.settle(settle, stale) == [published]
    assert queue.message(published) == before
    assert queue.settle("complete", current) == []


@give_back
def test_without_a_claim_id_nothing_is_returned(queue: Queue, settle: str) -> None:
    published = queue.publish()
    queue.claim()
    before = queue.message(published)

    for claim_ids in ([None], [], None, [0]):
        assert queue.call(settle, [published], claim_ids) == [published]
    assert queue.message(published) == before


@give_back
def test_a_message_that_ended_in_the_meantime_is_reported_as_lost(queue: Queue, settle: str) -> None:
    published = queue.publish()
    claimed = queue.claim()
    queue.call("cancel", [published])

    assert queue.settle(settle, claimed) == [published]


@give_back
def test_no_ids_lose_nothing(queue: Queue, settle: str) -> None:
    assert [queue.call(settle, [], []), queue.call(settle, None, None)] == [[], []]


@give_back
def test_a_message_is_superseded_by_a_newer_ready_one_of_its_key(queue: Queue, settle: str) -> None:
    older = queue.publish(key="k")
    claimed = queue.claim()
    newer = queue.publish(key="k")

    assert queue.settle(settle, claimed) == []

    assert queue.ids() == [newer]
    archived = queue.archived(older)
    assert (archived.result, archived.error) == ("cancelled", "superseded: a newer message with the same key is ready")


@give_back
def test_of_several_returned_messages_with_one_key_the_newest_stays(queue: Queue, settle: str) -> None:
    claimed, published = [], []
    for _ in range(3):
        published.append(queue.publish(key="k"))
        claimed += queue.claim()

    assert queue.settle(settle, claimed) == []

    assert queue.ids() == [published[-1]]
    assert [queue.archived(m).result for m in published[:-1]] == ["cancelled"] * 2


@give_back
def test_an_uncommitted_newer_message_of_its_key_is_waited_for_and_supersedes_it(
    queue: Queue, other: Queue, background: Background, settle: str
) -> None:
    older = queue.publish(key="k")
    claimed = queue.claim()

    with other.conn.transaction():
        newer = other.publish(key="k")
        settling = background.start_blocked(queue, queue.settle, settle, claimed)

    assert settling.result(timeout=60) == []
    assert (queue.ids(), queue.archived(older).result) == ([newer], "cancelled")


@give_back
def test_a_message_that_failed_before_stays_beside_a_newer_one_of_its_key(queue: Queue, settle: str) -> None:
    older = queue.publish(key="k", max_attempts=3)
    queue.settle("retry", queue.claim(), ["boom"], [timedelta(0)])
    claimed = queue.claim()
    newer = queue.publish(key="k")

    assert queue.settle(settle, claimed) == []
    assert queue.ids() == [older, newer]


@give_back
def test_the_same_key_in_another_topic_is_another_key(queue: Queue, settle: str) -> None:
    published = [queue.publish("a", key="k"), queue.publish("b", key="k")]

    queue.settle(settle, queue.claim("a", "b"))

    assert queue.ids() == published


@give_back
def test_the_low_water_mark_is_lowered_so_that_the_next_claim_finds_the_message(queue: Queue, settle: str) -> None:
    published = queue.publish(wait="-1 hour")
    claimed = queue.claim()
    queue.conn.execute("UPDATE messages.low_water SET at = now()")

    if settle == "defer":
        queue.settle("defer", claimed, None, [queue.value("SELECT now() - interval '1 minute'")])
    else:
        queue.settle("release", claimed)

    assert queue.value("SELECT at FROM messages.low_water") == queue.message(published).available_at
    assert [c.id for c in queue.claim()] == [published]


@give_back
def test_a_low_water_mark_is_not_raised(queue: Queue, settle: str) -> None:
    queue.publish()
    claimed = queue.claim()
    queue.conn.execute("UPDATE messages.low_water SET at = '2020-01-01 00:00+00'")

    queue.settle(settle, claimed)

    assert queue.value("SELECT at < '2020-01-02' FROM messages.low_water")


# messages.is_in_ordered_channel: whether a channel waits for this message.


@pytest.mark.parametrize(
    ("topic", "default", "channel", "expected"),
    [
        (True, False, "c", True),
        (True, False, None, False),
        (None, True, "c", True),
        (False, True, "c", False),
        (None, False, "c", False),
    ],
)
def test_the_topics_own_value_wins_over_the_default_and_only_in_a_channel(
    queue: Queue, topic: bool | None, default: bool, channel: str | None, expected: bool
) -> None:
    queue.policy("*", ordered=default)
    queue.policy(ordered=topic)
    published = queue.publish(channel=channel)

    assert queue.call("is_in_ordered_channel", published) is expected


# messages.has_strict_lock: whether an expired lock of a topic is lost.


@pytest.mark.parametrize(
    ("default", "own", "strict"), [(False, None, False), (True, None, True), (False, True, True), (True, False, False)]
)
def test_the_topics_own_value_wins_over_the_default(
    queue: Queue, default: bool, own: bool | None, strict: bool
) -> None:
    queue.policy("*", strict_lock=default)
    queue.policy("t", strict_lock=own)

    assert queue.call("has_strict_lock", "t") is strict
