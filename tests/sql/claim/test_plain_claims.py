"""messages.claim_with_next_due claims topics without limits in fewer statements than others.

It claims the same either way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql

from tests.sql.queue import Queue

# A limit that is never reached, so that the claim asks for it.
LIMITED = {"max_concurrency": 1_000_000}


@dataclass(frozen=True)
class Given:
    """One message: when it is due, in seconds from now, and the bytes of its payload.

    If it ends before it is claimed, it also has how it ends.
    """

    priority: int
    wait_s: int
    used_up: bool
    expired: bool
    size: int


MESSAGES = st.lists(
    st.builds(
        Given,
        priority=st.integers(0, 3),
        wait_s=st.sampled_from([-9, -5, -1, 3600]),
        used_up=st.booleans(),
        expired=st.booleans(),
        size=st.sampled_from([0, 100, 400]),
    ),
    max_size=12,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    messages=MESSAGES,
    limit=st.integers(1, 6),
    # Batches may end elsewhere when their bytes are limited, and so other messages begin at once.
    bounds=st.sampled_from([(1, None), (300, None), (1000, None), (100_000, None), (100_000, 0), (100_000, 2)]),
)
def test_a_topic_without_limits_is_claimed_as_one_whose_limit_is_never_reached(
    queue: Queue, messages: list[Given], limit: int, bounds: tuple[int, int | None]
) -> None:
    most_bytes, start = bounds
    queue.conn.execute("TRUNCATE messages.message, messages.message_archive CASCADE")
    queue.policy("limited", **LIMITED)
    for topic in ("plain", "limited"):
        publish(queue, topic, messages)

    plain = claim_all(queue, "plain", limit, most_bytes, start)
    limited = claim_all(queue, "limited", limit, most_bytes, start)

    assert [n for batch in plain for n in batch] == [n for batch in limited for n in batch]
    assert left(queue, "plain") == left(queue, "limited")
    assert all(len(batch) <= limit for batch in plain)
    sizes = {n: each.size for n, each in enumerate(messages)}
    assert all(sum(sizes[n] for n in batch[:-1]) < most_bytes for batch in plain)


def publish(queue: Queue, topic: str, messages: list[Given]) -> None:
    for number, each in enumerate(messages):
        queue.publish(
            topic,
            priority=each.priority,
            wait=f"{each.wait_s} s",
            headers={"n": number},
            max_attempts=1,
            attempts=int(each.used_up),
            payload=sql.SQL("to_jsonb({}::text)").format("x" * each.size),
            expires_at="2026-01-01" if each.expired else None,
        )


def claim_all(queue: Queue, topic: str, limit: int, most_bytes: int, start: int | None) -> list[list[int]]:
    """Claim until nothing is due; return the numbers of the messages, batch by batch."""
    batches: list[list[int]] = []
    while claimed := queue.claim(topic, limit=limit, bytes=most_bytes, start=start):
        batches.append([number(each) for each in claimed])
    return batches


def number(claimed: Any) -> int:
    """Return the number that the message was published with."""
    return int(claimed.headers.split(":")[1].rstrip("}"))


def left(queue: Queue, topic: str) -> list[Any]:
    """Return the messages as they are now, and how those ended that are gone."""
    return queue.rows(
        """
        SELECT m.headers ->> 'n' AS n, m.attempts, m.runs, m.prefetched, m.claim_id IS NOT NULL AS is_locked,
               NULL AS result
        FROM messages.message AS m WHERE m.topic = %(topic)s
        UNION ALL
        SELECT a.headers ->> 'n', a.attempts, a.runs, NULL, NULL, a.result
        FROM messages.message_archive AS a WHERE a.topic = %(topic)s
        ORDER BY n, result
        """,
        {"topic": topic},
    )
