"""messages.claim_with_next_due with p_message_id: the message that a worker was notified of, in fewer statements."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sql.queue import Queue


def test_the_claim_takes_the_message_alone_and_says_nothing_of_the_rest(queue: Queue) -> None:
    _, named, _ = queue.publish_many(3)

    claimed, left = queue.claim_with_next_due(message_id=named)

    assert [message.id for message in claimed] == [named]
    assert set(left) == {None}


def test_the_message_is_claimed_as_by_any_other_claim(queue: Queue) -> None:
    named = queue.publish(priority=7, headers={"a": "b"}, max_attempts=3)

    with queue.conn.transaction(force_rollback=True):
        by_order, _ = queue.claim_with_next_due("t", "u", start=0, lock_duration="1 min")
    by_id, _ = queue.claim_with_next_due("t", "u", start=0, lock_duration="1 min", message_id=named)

    assert by_id[0]._replace(claim_id=0, waited_s=0) == by_order[0]._replace(claim_id=0, waited_s=0)
    assert queue.message(named).prefetched is True


def test_a_session_claims_either_way_in_turns(queue: Queue) -> None:
    ids = queue.publish_many(6)

    claimed = [queue.claim_with_next_due(limit=1, message_id=named)[0][0].id for named in [ids[5], None, ids[3], None]]

    assert claimed == [ids[5], ids[0], ids[3], ids[1]]


@pytest.mark.parametrize(
    ("columns", "policy", "arguments"),
    [
        ({"wait": "1 hour"}, {}, {}),
        ({"channel": "c"}, {}, {}),
        ({"expires_at": "2026-01-01"}, {}, {}),
        ({"attempts": 3, "max_attempts": 3}, {}, {}),
        ({"topic": "other"}, {}, {}),
        ({"topic": "u"}, {"max_concurrency": 100}, {}),
        ({"topic": "u"}, {"paused_at": "2026-01-01"}, {}),
        ({"topic": "u"}, {}, {"slots": [None, 0]}),
        ({"topic": "u"}, {"ordered": True}, {}),
    ],
    ids=str,
)
def test_where_it_cannot_be_had_so_the_claim_is_made_as_without_it(
    queue: Queue, columns: dict[str, Any], policy: dict[str, Any], arguments: dict[str, Any]
) -> None:
    first = queue.publish(wait="-1 hour")
    named = queue.publish(**columns)
    if policy:
        queue.policy("u", **policy)
    # An even one begins without channels.
    queue.let_claim_ids(lambda number: number % 2 == 0, claims=2)

    with queue.conn.transaction(force_rollback=True):
        by_order, left = queue.claim_with_next_due("t", "u", limit=1, **arguments)
    by_id, left_by_id = queue.claim_with_next_due("t", "u", limit=1, message_id=named, **arguments)

    assert [message.id for message in by_id] == [message.id for message in by_order] == [first]
    assert left_by_id == left


def test_a_message_that_another_session_is_claiming_is_not_waited_for(queue: Queue, other: Queue) -> None:
    named, second = queue.publish_many(2)
    with other.conn.transaction():
        assert [message.id for message in other.claim_with_next_due(message_id=named)[0]] == [named]

        assert [message.id for message in queue.claim_with_next_due(message_id=named)[0]] == [second]


@pytest.mark.parametrize("limit", [0, 1])
def test_no_message_of_this_id_is_no_error(queue: Queue, limit: int) -> None:
    claimed, left = queue.claim_with_next_due(limit=limit, message_id=9223372036854775807)

    assert (claimed, set(left)) == ([], {None})


def test_a_claim_of_no_bytes_takes_nothing(queue: Queue) -> None:
    named = queue.publish()

    assert queue.claim_with_next_due(message_id=named, bytes=0)[0] == []


def test_its_priority_enters_the_directory_of_low_water_marks(own_queue: Queue) -> None:
    """Without a mark, empty claims behind a held snapshot would read the entries of all messages that are gone."""
    named = own_queue.publish(priority=3)

    own_queue.claim_with_next_due(message_id=named)

    assert own_queue.rows("SELECT topic::text, priority::integer FROM messages.low_water") == [("t", 3)]
