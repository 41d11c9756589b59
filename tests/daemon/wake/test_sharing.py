"""Several daemons on one queue."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from psycopg import sql

from tests.daemon.process import Daemon, Journal
from tests.server.deadline import eventually
from tests.sql.queue import Queue

Start = Callable[..., Daemon]


@pytest.mark.long
@pytest.mark.every_server
def test_two_daemons_share_2000_messages_without_a_duplicate(start: Start, queue: Queue, journal: Journal) -> None:
    daemons = [start({"job": "holding:hold"}, concurrency=20) for _ in range(2)]

    # As many as both together can hold: neither has to be fast to get some.
    published = queue.publish_many(40, "job")
    eventually(lambda: len(journal.entries("start")) == 40)
    for daemon in daemons:
        daemon.open_gate()
    published += [each for _ in range(20) for each in queue.publish_many(98, "job")]

    eventually(lambda: queue.ids() == [], within_s=60)
    started = journal.entries("start")
    assert sorted(e["id"] for e in started) == published
    assert {e["pid"] for e in started} == {each.pid for each in daemons}
    assert queue.value("SELECT count(*) FROM messages.message_archive WHERE result = 'success'") == 2000


def test_a_topic_without_a_handler_is_left_to_others_and_shows_as_unhandled(
    start: Start, queue: Queue, journal: Journal
) -> None:
    start({"known": "work:echo"})
    unknown = queue.publish("unknown")

    known = queue.publish("known")
    journal.entry("start", known)

    eventually(lambda: [row.topic for row in queue.rows("SELECT messages.unhandled_topics() AS topic")] == ["unknown"])
    assert (queue.message(unknown).attempts, queue.message(unknown).claim_id) == (0, None)
    start({"unknown": "work:echo"})
    journal.entry("start", unknown)


@pytest.mark.parametrize("handler", ["holding:hold", "holding:hold_in_thread"])
def test_a_topic_at_its_limit_continues_as_soon_as_a_slot_is_free(
    start: Start, queue: Queue, journal: Journal, handler: str
) -> None:
    daemon = start({"narrow": {"handler": handler, "concurrency": 2}, "other": "work:echo"})
    queue.publish_many(6, "narrow")
    eventually(lambda: len(journal.entries("start")) == 2)
    journal.entry("start", queue.publish("other"))

    daemon.open_gate()

    eventually(lambda: len(journal.entries("end")) == 6)


def test_the_configured_number_of_threads_work(start: Start, queue: Queue, journal: Journal) -> None:
    daemon = start({"job": "holding:hold_in_thread"}, threads=4)

    queue.publish_many(12, "job")

    eventually(lambda: len(journal.entries("start")) == 4)
    daemon.open_gate()
    eventually(lambda: len(journal.entries("end")) == 12)
    assert _most_at_once(journal) == 4


@pytest.mark.long
@pytest.mark.parametrize(
    ("topic", "worker"),
    [("work:locked_now", {"concurrency": 2}), ({"handler": "work:locked_now", "concurrency": 2}, {"concurrency": 50})],
    ids=["of the worker", "of the topic"],
)
def test_without_prefetch_claimed_messages_never_exceed_the_limit_whatever_number_of_loops_claims(
    start: Start, queue: Queue, topic: object, worker: dict[str, int]
) -> None:
    start({"job": topic}, claim_connections=4, prefetch=0, **worker)

    queue.publish_many(300, "job")

    eventually(lambda: queue.ids() == [], within_s=60)
    assert queue.value("SELECT max(output::int) FROM messages.message_archive") <= 2


@pytest.mark.long
@pytest.mark.parametrize("handler", ["holding:hold", "holding:hold_in_thread"])
def test_what_a_worker_claimed_ahead_goes_to_others_when_its_handlers_become_slow(
    start: Start, queue: Queue, journal: Journal, handler: str
) -> None:
    first = start({"job": handler}, concurrency=2, threads=2)
    first.open_gate("open")
    published = queue.publish_many(2000, "job", payload=sql.SQL("'\"open\"'"))
    slow = queue.publish_many(100, "job")
    # Two claim loops: which two of the slow ones begin, and how many of the others before them, is open.
    eventually(lambda: len([each for each in journal.entries("start") if each["id"] in slow]) == 2, within_s=60)

    second = start({"job": "work:echo"})

    eventually(lambda: len(queue.ids()) == 2, within_s=60)
    started = journal.entries("start")
    assert sorted(each["id"] for each in started) == [*published, *slow]
    assert {each["pid"] for each in started if each["id"] in queue.ids()} == {first.pid}
    assert len([each for each in started if each["id"] in slow and each["pid"] == second.pid]) == 98
    first.open_gate()


def _most_at_once(journal: Journal) -> int:
    running, most = 0, 0
    for entry in journal.entries():
        running += {"start": 1, "end": -1}[entry["what"]]
        most = max(most, running)
    return most
