"""Attempts to make messages wait without end, or to make a claim read everything.

They are floods, delayed first messages, and dead rows behind a held snapshot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import psycopg
import pytest
from psycopg import sql

from tests.api.site import Site
from tests.server.postgres import Database
from tests.sql.queue import Queue

CLAIM = "SELECT * FROM messages.claim('w', ARRAY['t'], 10)"
ROWS = 20_000


def one(queue: Queue, *topics: str) -> tuple[str, str]:
    """Claim one message and complete it, without passing earlier positions; return its topic and channel."""
    (claimed,) = queue.claim(*topics, limit=1)
    queue.settle("complete", [claimed])
    return claimed.topic, claimed.channel


@contextmanager
def one_over_http(database: Database, *topics: str) -> Iterator[list[tuple[str, str]]]:
    """Complete all messages over HTTP, one message per request."""
    site = Site(database)
    worked: list[tuple[str, str]] = []
    try:
        with httpx.Client(
            base_url=site.url, timeout=60, headers={"authorization": f"Bearer {site.token('worker')}"}
        ) as http:
            for _ in range(30):
                (message,) = http.post("/v1/claim", json={"topics": list(topics)}).json()["messages"]
                ended = {"claim_id": message["claim_id"], "outcome": "complete"}
                assert http.post(f"/v1/messages/{message['id']}/settle", json=ended).status_code == 200
                worked.append((message["topic"], message["channel"]))
        yield worked
    finally:
        site.stop()


def flood(queue: Queue) -> None:
    """Fill three channels of two topics, one of them with ten times as many messages as the others."""
    for topic in "az":
        queue.publish_many(200, topic, channel="a")
        for channel in "bc":
            queue.publish_many(20, topic, channel=channel)


def test_claims_of_one_message_give_each_topic_and_channel_its_share(queue: Queue) -> None:
    flood(queue)

    worked = Counter(one(queue, "a", "z") for _ in range(30))

    assert worked == {(topic, channel): 5 for topic in "az" for channel in "abc"}


def test_claims_that_each_have_their_own_connection_do_so_too(queue: Queue, database: Database) -> None:
    flood(queue)

    worked = Counter[tuple[str, str]]()
    for _ in range(30):
        with database.connect() as conn:
            worked[one(Queue(conn), "a", "z")] += 1

    assert worked == {(topic, channel): 5 for topic in "az" for channel in "abc"}


def test_claims_over_http_do_so_too(queue: Queue, database: Database) -> None:
    flood(queue)

    with one_over_http(database, "a", "z") as worked:
        assert Counter(worked) == {(topic, channel): 5 for topic in "az" for channel in "abc"}


def test_a_worker_that_claims_only_one_of_the_topics_does_not_change_the_others_walk(queue: Queue) -> None:
    """A caller that always claims in between must not bring another one back to the same topic each time."""
    for topic in "amz":
        queue.publish_many(100, topic)

    worked = Counter[str]()
    for _ in range(30):
        worked[one(queue, "a", "m", "z")[0]] += 1
        one(queue, "a")

    assert worked == {"a": 10, "m": 10, "z": 10}


def test_within_a_topic_priority_is_strict(queue: Queue) -> None:
    for priority in (9, 0, 5):
        queue.publish_many(3, priority=priority)
        queue.publish_many(3, priority=priority, channel="c")

    order = [c.priority for _ in range(18) for c in queue.claim(limit=1) if c.channel is None]
    assert order == sorted(order)


def test_a_claim_that_finds_nothing_writes_nothing(queue: Queue) -> None:
    queue.publish(channel="a", wait="1 hour")

    before = queue.value("SELECT pg_current_snapshot()::text")
    for _ in range(3):
        assert queue.claim("t", "u", limit=1) == []

    assert queue.value("SELECT pg_current_snapshot()::text") == before


def work_off(queue: Queue, channels: int) -> None:
    """Publish to this many channels, claim and complete, which leaves as many dead index entries.

    They are some seconds old.
    """
    queue.publish_many(ROWS, channel=sql.SQL("'c' || n % {}").format(channels), wait="-5 s")
    while claimed := queue.claim(limit=10_000):
        queue.settle("complete", claimed)


def raise_marks(queue: Queue) -> None:
    """Move the low-water marks as daemons do each second."""
    for _ in range(2):
        queue.conn.execute("UPDATE messages.low_water_mark SET next_run_at = 'epoch'")
        queue.value("SELECT messages.raise_low_water('0 s')")
    queue.let_claim_ids(lambda claim_id: claim_id % 64 != 0, claims=40)


@pytest.mark.parametrize("channels", [1, 500, 10_000])
def test_behind_a_held_snapshot_the_cost_of_a_claim_from_channels_does_not_grow(
    queue: Queue, database: Database, channels: int
) -> None:
    queue.publish_many(20, channel="c1")
    fresh = queue.buffers(CLAIM)
    nothing = queue.buffers(CLAIM)
    queue.conn.execute("DELETE FROM messages.message")
    with database.held_snapshot():
        work_off(queue, channels)
        queue.publish_many(30, channel="c1", wait="1 hour")
        behind = queue.buffers(CLAIM)
        raise_marks(queue)
        found_nothing = queue.buffers(CLAIM)
        queue.publish_many(20, channel="c1")
        marked = queue.buffers(CLAIM)

    assert behind > 3 * fresh, "the snapshot keeps the dead rows"
    assert (marked < 2 * fresh, found_nothing < nothing + fresh) == (True, True)


@pytest.mark.parametrize("channels", [1, 500])
def test_the_cost_of_next_due_does_not_grow_either(queue: Queue, database: Database, channels: int) -> None:
    with database.held_snapshot():
        work_off(queue, channels)
        queue.publish(channel="c1", wait="1 hour")
        raise_marks(queue)

        assert queue.buffers("SELECT messages.next_due(ARRAY['t'])") < 100
        assert queue.buffers("SELECT messages.renotify_stale()") < 100


def delay(queue: Queue, channels: int) -> None:
    """Make the first message of this many channels one for tomorrow."""
    queue.publish_many(channels, channel=sql.SQL("'c' || n"), wait="1 day")


def test_channels_whose_first_message_is_delayed_cost_nothing_however_many_there_are(queue: Queue) -> None:
    delay(queue, 10)
    few = queue.buffers(CLAIM), queue.buffers("SELECT messages.next_due(ARRAY['t'])")
    delay(queue, ROWS)

    assert queue.buffers(CLAIM) < 2 * few[0]
    assert queue.buffers("SELECT messages.next_due(ARRAY['t'])") < 2 * few[1]


def test_another_topic_of_the_same_claim_does_not_wait_behind_them(queue: Queue) -> None:
    delay(queue, ROWS)
    queue.publish_many(100, "u")

    assert queue.buffers("SELECT * FROM messages.claim('w', ARRAY['t', 'u'], 10)") < 500


def test_a_due_message_among_them_is_found_at_once(queue: Queue) -> None:
    delay(queue, ROWS)
    queue.publish_many(3, channel="c5")

    assert queue.buffers(CLAIM) < 500
    assert len(queue.claim()) == 0
    queue.publish(channel="c77")
    assert [c.channel for c in queue.claim()] == ["c77"]


def test_a_flood_among_them_hides_no_other_channel_and_a_claim_checks_some_of_them(queue: Queue) -> None:
    delay(queue, ROWS)
    queue.publish_many(3000, channel="c00", wait="-1 hour")
    queue.publish(channel="c9", priority=9)

    pages = list[int]()
    while not queue.rows("SELECT FROM messages.message WHERE channel = 'c9' AND claim_id IS NOT NULL"):
        pages.append(queue.buffers(CLAIM))
        assert len(pages) <= ROWS / 2000, "this was more than one round, since each of them claims twice"

    assert max(pages) < 20_000
    assert queue.value("SELECT count(DISTINCT claim_id) FROM messages.message WHERE channel = 'c00'") >= len(pages)


def admitted_one_by_one(queue: Queue, publish: str) -> int:
    """Return for how many rows of a publish the policies of their topic were looked up."""
    calls = "SELECT coalesce(sum(pg_stat_get_xact_function_calls('messages.admit_message'::regproc)), 0)::int"
    queue.conn.execute("SET track_functions = 'all'")
    with queue.conn.transaction():
        queue.conn.execute(publish.encode())
        rows: int = queue.value(calls)
    return rows


BULK = "INSERT INTO messages.message (topic, payload) SELECT '{}', '1' FROM generate_series(1, 1000)"


@pytest.mark.parametrize(
    "settings", [{"ttl": "1 hour"}, {"max_payload_bytes": 1000}, {"max_depth": 5000}, {"publish_rate": 5000.0}]
)
def test_a_policy_of_one_topic_costs_a_bulk_publish_to_others_nothing(
    queue: Queue, settings: dict[str, object]
) -> None:
    queue.policy("x", **settings)

    assert admitted_one_by_one(queue, BULK.format("t")) == 0
    assert admitted_one_by_one(queue, BULK.format("x")) == 1000


def test_a_policy_of_all_topics_is_looked_up_for_each(queue: Queue) -> None:
    queue.conn.execute("UPDATE messages.topic SET ttl = '1 hour' WHERE topic = '*'")

    assert admitted_one_by_one(queue, BULK.format("t")) == 1000


def test_a_subscription_costs_a_bulk_publish_to_others_nothing(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.subscription (topic, subscriber) VALUES ('x', 'y')")

    assert admitted_one_by_one(queue, BULK.format("t")) == 0


def test_settings_and_objects_of_a_publisher_bypass_no_policy(queue: Queue, database: Database) -> None:
    """The settings of its session, and functions and operators of its own in front of the server's."""
    queue.policy("x", max_payload_bytes=1000)
    queue.conn.execute("CREATE ROLE starving_publisher IN ROLE messages_publisher; CREATE SCHEMA trap")
    queue.conn.execute("GRANT ALL ON SCHEMA trap TO starving_publisher")
    try:
        publisher = database.connect()
        publisher.execute("SET ROLE starving_publisher")
        publisher.execute(
            "CREATE FUNCTION trap.hashtext(text) RETURNS integer LANGUAGE sql IMMUTABLE RETURN 0;"
            "CREATE FUNCTION trap.pg_sequence_last_value(regclass) RETURNS bigint LANGUAGE sql RETURN 1;"
            "SET search_path = trap, pg_catalog; SET messages.policy_topic_bits = '1'; SET messages.depth_left = '1'"
        )
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            publisher.execute("SELECT setval('messages.policy_topic_bits', 1)")
        with pytest.raises(psycopg.DatabaseError) as refused:
            publisher.execute("INSERT INTO messages.message (topic, payload) VALUES ('x', to_jsonb(repeat('y', 2000)))")
        assert refused.value.sqlstate == "PGR04"
    finally:
        database.disconnect()
        with database.server.admin(database.name) as admin:
            admin.execute("DROP OWNED BY starving_publisher; DROP ROLE starving_publisher")
