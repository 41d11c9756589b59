"""messages.pick_messages: messages with a channel and messages without share a claim."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue, Row

PICK = """
    SELECT cardinality(p.rows) AS count, p.bytes, p.over, p.expired,
           (SELECT array_agg(m.id ORDER BY r.nth) FROM unnest(p.rows) WITH ORDINALITY AS r (ctid, nth) JOIN messages.message AS m ON m.ctid = r.ctid) AS ids
    FROM messages.pick_messages(messages.claim_policy('t', messages.now()), messages.now(), %s, NULL, %s, %s) AS p
"""


def pick(queue: Queue, claim_id: int, limit: int = 100, most_bytes: int = 1_000_000) -> Row:
    return queue.row(PICK, [claim_id, limit, most_bytes])


@pytest.mark.parametrize("claim_id", [1, 2])
def test_the_limit_counts_for_both_kinds_together(queue: Queue, claim_id: int) -> None:
    queue.publish_many(5)
    queue.publish_many(5, channel="c")

    assert pick(queue, claim_id, 7).count == 7


@pytest.mark.parametrize("claim_id", [1, 2])
def test_the_bytes_count_for_both_kinds_together(queue: Queue, claim_id: int) -> None:
    for channel in (None, "c"):
        queue.publish_many(3, body=b"x" * 100, channel=channel)

    assert pick(queue, claim_id, most_bytes=450).count == 5


def test_odd_claims_begin_with_the_channels_and_even_ones_without(queue: Queue) -> None:
    without, within = queue.publish(), queue.publish(channel="c")

    assert pick(queue, 1).ids == [within, without]
    assert pick(queue, 2).ids == [without, within]


def test_what_ends_instead_is_gathered_from_both_kinds(queue: Queue) -> None:
    gone = [queue.publish(channel=channel, expires_at="2026-01-01") for channel in ("c", None)]

    assert sorted(pick(queue, 1).expired) == sorted(gone)
    assert pick(queue, 1).count == 0


@pytest.mark.parametrize(("claim_id", "found"), [(63, 0), (64, 1), (65, 0), (128, 1), (6400, 1)])
def test_every_64th_claim_reads_from_the_left_edge_so_that_no_mark_can_hide_a_message_for_ever(
    queue: Queue, claim_id: int, found: int
) -> None:
    queue.conn.execute("INSERT INTO messages.low_water (topic, priority, at) VALUES ('t', 5, '2026-01-02')")
    queue.publish(available_at="2026-01-01")

    assert pick(queue, claim_id).count == found
