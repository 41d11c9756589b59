"""A publisher makes topics without end.

No page, no answer and no tick becomes more expensive than with some thousands, and none is hidden.
"""

from __future__ import annotations

import timeit
from collections.abc import Iterator

import pytest

from tests.api.site import Site
from tests.server.postgres import Database, Postgres
from tests.sql.queue import Queue

FLOOD = (
    "INSERT INTO messages.message (topic, payload) SELECT 'flood.' || n, '1' "
    "FROM generate_series(%s::int, %s::int) AS n"
)
# The calls of this transaction so far.
CALLS = "SELECT coalesce(sum(calls), 0) FROM pg_stat_xact_user_functions"
FIRST, SECOND = 3_000, 6_000
NAMED = "ARRAY(SELECT 'flood.' || n FROM generate_series(1, 300) AS n)"


@pytest.fixture(scope="module")
def flooded(server: Postgres) -> Iterator[Database]:
    with server.new_database(template=server.migrated) as database:
        with database.connect() as conn:
            conn.execute(FLOOD, [1, FIRST])
            conn.execute("INSERT INTO messages.message (topic, payload) VALUES ('zebra', '1'), ('zoo.lion', '1')")
            conn.execute("INSERT INTO messages.topic (topic, max_attempts) VALUES ('zoo.bear', 3)")
        yield database


@pytest.fixture
def queue(flooded: Database) -> Queue:
    return Queue(flooded.connect())


@pytest.fixture(scope="module")
def site(flooded: Database) -> Iterator[Site]:
    site = Site(flooded)
    yield site
    site.stop()


def calls(queue: Queue, statement: str) -> int:
    """How many calls of functions a statement makes; what it changes is undone."""
    with queue.conn.transaction(force_rollback=True):
        queue.conn.execute("SET LOCAL track_functions = 'all'")
        before = queue.value(CALLS)
        queue.conn.execute(statement.encode())
        return int(queue.value(CALLS) - before)


BOUNDED = {
    "tick": "SELECT * FROM messages.tick('cron')",
    "stats": "SELECT * FROM messages.stats()",
    "list_topics": "SELECT * FROM messages.list_topics()",
    "conditions": "SELECT * FROM messages.conditions()",
    "unhandled_topics": "SELECT * FROM messages.unhandled_topics()",
    "examine_workers": "SELECT * FROM messages.examine_workers()",
    "examine_topics": "SELECT * FROM messages.examine_topics()",
    "examine_conditions": "SELECT * FROM messages.examine_conditions()",
}


def test_the_work_of_each_does_not_grow_with_the_topics(queue: Queue) -> None:
    before = {name: calls(queue, statement) for name, statement in BOUNDED.items()}
    with queue.conn.transaction(force_rollback=True):
        queue.conn.execute(FLOOD, [FIRST + 1, SECOND])
        after = {name: calls(queue, statement) for name, statement in BOUNDED.items()}

    grown = {name: (before[name], after[name]) for name in BOUNDED if after[name] > 1.2 * before[name] + 50}
    assert grown == {}


def seconds(queue: Queue, statement: str) -> float:
    """How long a statement takes, at best."""
    return min(timeit.repeat(lambda: queue.conn.execute(statement.encode()), number=1, repeat=3))


@pytest.mark.parametrize("of", ["stats(p_topics => %s)", "list_topics(p_topics => %s)"])
def test_hundreds_of_named_topics_take_as_long_as_all(queue: Queue, of: str) -> None:
    statement = f"SELECT * FROM messages.{of}"

    # With a regular expression for each name it took fifty times as long.
    assert seconds(queue, statement % NAMED) < 10 * seconds(queue, statement % "'{*}'")


def test_a_tick_finishes_all_its_tasks_and_the_doctor_names_the_cause(queue: Queue) -> None:
    queue.publish("zebra")
    (message, *_) = queue.claim("zebra", limit=1, lock_duration="0 s")

    done = {row.task: row.count for row in queue.rows("SELECT * FROM messages.tick('hand')")}

    assert -1 not in done.values()
    assert done["expire_locks"] >= 1
    assert queue.rows("SELECT FROM messages.message WHERE id = %s AND claim_id IS NOT NULL", [message.id]) == []
    assert queue.value("SELECT level FROM messages.examine_topics() WHERE code = 'many_topics'") == "warn"


def test_pages_show_what_matters_most_and_each_topic_is_found_by_the_beginning_of_its_name(site: Site) -> None:
    with site.client(site.token("viewer"), {"accept": "text/html"}) as browser:
        first, found, overview = (browser.get(path) for path in ("/topics", "/topics?q=flood.29", "/"))
        topic, messages, doctor = (
            browser.get(path) for path in ("/topics/zoo.lion", "/messages?topic=zoo.lion", "/doctor")
        )

    assert "There are more topics" in first.text
    assert "topic-flood.2999" in found.text
    assert "or more topics" in overview.text
    assert {each.status_code for each in (first, found, overview, topic, messages, doctor)} == {200}


def test_the_api_lists_every_topic_page_by_page(site: Site) -> None:
    topics, after = [], None
    with site.client(site.token("viewer")) as http:
        stats = http.get("/v1/stats").json()
        while after is not None or not topics:
            page = http.get("/v1/topics", params={"limit": 500, **({"cursor": after} if after else {})}).json()
            topics += [row["topic"] for row in page["topics"]]
            after = page["next"]
        metrics = http.get("/metrics")

    assert topics == sorted([*(f"flood.{n}" for n in range(1, FIRST + 1)), "zebra", "zoo.bear", "zoo.lion"])
    assert (len(stats["topics"]), stats["all_topics"]) == (1_000, False)
    assert "zoo.bear" in {row["topic"] for row in stats["topics"]}
    assert 'topic="zoo.bear"' in metrics.text


def test_a_token_of_some_topics_sees_them_whatever_others_there_are(site: Site) -> None:
    with site.client(site.token("viewer", topics=("z*", "flood.7"))) as http:
        listed = [row["topic"] for row in http.get("/v1/topics").json()["topics"]]
        stats = http.get("/v1/stats").json()

    assert listed == ["flood.7", "zebra", "zoo.bear", "zoo.lion"]
    assert [row["topic"] for row in stats["topics"]] == listed
    assert stats["all_topics"] is True
