"""Four times the rows are some four times the work, whatever statistics say: in a statement over many rows nothing is compared with each other.

The work is counted, not timed: see tests/sql/work.py.
"""

from __future__ import annotations

from uuid import UUID

import pytest

from tests.sql.queue import Queue
from tests.sql.work import Work, work

pytestmark = pytest.mark.every_server

# Versions of one row are many before they fill pages.
SMALL, ONE_KEY, TIMES = 100, 400, 4
# Trees have another level, and a walk over pages begins somewhere; to compare all rows with each other would be 16 times the work.
MOST = 6

UNIQUE, SAME, PAIRS = "n::text", "'same'", "(n / 2)::text"
POLICIES = [
    "",
    "key_ttl = '1 hour'",
    "max_depth = 1000000, on_full = 'drop'",
    "max_payload_bytes = 100000",
    "max_payload_bytes = 100",
]
STATISTICS = ["none", "of an empty stage", "of one row"]


def stage(queue: Queue, count: int, key: str, on_conflict: str | None, topic: str = "'t'") -> UUID:
    attempt: UUID = queue.call("begin_staging", "j")
    queue.conn.execute(
        "INSERT INTO messages.publish_stage (attempt, topic, key, payload, on_conflict) "
        f"SELECT %s, {topic}, {key}, '1', %s FROM generate_series(1, %s) AS n",
        [attempt, on_conflict, count],
    )
    return attempt


def publish(queue: Queue, count: int, key: str, on_conflict: str | None, topic: str = "'t'") -> Work:
    """Publish staged rows; return the work. Nothing of it stays."""
    with queue.conn.transaction(force_rollback=True):
        attempt = stage(queue, count, key, on_conflict, topic)
        return work(queue, "SELECT messages.publish_staged('j', %s, %s::bigint[])", [[attempt], [count]])


@pytest.mark.parametrize("key", [UNIQUE, PAIRS])
@pytest.mark.parametrize("on_conflict", [None, "ignore", "replace", "append"])
def test_publishing_keys_in_bulk_grows_with_their_number(queue: Queue, on_conflict: str | None, key: str) -> None:
    less, more = (publish(queue, SMALL * times, key, on_conflict) for times in (1, TIMES))

    assert more.is_within(MOST, less), (less, more)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("on_conflict", [None, "ignore", "replace", "append"])
def test_publishing_one_key_many_times_grows_with_the_number_of_rows_whatever_policy_its_topic_has(
    queue: Queue, on_conflict: str | None, policy: str
) -> None:
    if policy:
        insert, update = (
            "INSERT INTO messages.topic (topic) VALUES ('t')",
            f"UPDATE messages.topic SET {policy} WHERE topic = 't'",
        )
        queue.conn.execute(f"{insert}; {update}")

    less, more = (publish(queue, ONE_KEY * times, SAME, on_conflict) for times in (1, TIMES))

    assert more.is_within(MOST, less), (less, more)


@pytest.mark.parametrize("statistics", STATISTICS)
@pytest.mark.parametrize("waiting", ["", UNIQUE])
def test_publishing_keys_in_bulk_grows_with_their_number_whatever_statistics_say(
    queue: Queue, statistics: str, waiting: str
) -> None:
    if waiting:
        queue.conn.execute(
            f"INSERT INTO messages.message (topic, key, payload) SELECT 't', {waiting}, '1' FROM generate_series(1, {SMALL * TIMES}) AS n"
        )
    if statistics != "none":
        stage(queue, int(statistics == "of one row"), UNIQUE, None)
        queue.conn.execute("ANALYZE messages.publish_stage")

    less, more = (publish(queue, SMALL * times, UNIQUE, None) for times in (1, TIMES))

    assert more.is_within(MOST, less), (less, more)


@pytest.mark.parametrize("key", ["NULL", UNIQUE])
def test_publishing_to_many_topics_in_bulk_grows_with_the_number_of_rows(queue: Queue, key: str) -> None:
    queue.conn.execute("UPDATE messages.topic SET max_payload_bytes = 1000 WHERE topic = '*'")

    less, more = (publish(queue, SMALL * times, key, None, topic="'t' || n") for times in (1, TIMES))

    assert more.is_within(MOST, less), (less, more)
