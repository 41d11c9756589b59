"""The outcome of a handler and the result of its message.

They are the same in a coroutine, in a thread and in a child process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import pgrouse
from tests.daemon.process import Fleet, Journal
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue

# The folder of pgrouse in tracebacks; the folder of the checkout may have its name.
PACKAGE = str(Path(pgrouse.__file__).parent)
TOPICS = {
    "async": "work:act",
    "returned": "work:act_by_returning",
    "thread": "work:act_in_thread",
    "process": {"handler": "work:act_in_process", "isolation": "process", "concurrency": 1},
    "typed": "work:take_order",
    "bytes": "work:take_bytes",
    "context": "work:return_context",
}
in_every_mode = pytest.mark.parametrize("topic", ["async", "returned", "thread", "process"])


@pytest.fixture(scope="module")
def database(shared: Database) -> Database:
    return shared


@pytest.fixture(scope="module")
def fleet(database: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """One daemon for all of these tests."""
    fleet = Fleet(tmp_path_factory.mktemp("outcomes"))
    Queue(database.connect()).policy("*", max_attempts=3, backoff={"kind": "none"})
    fleet.start(database.connect(), TOPICS, dsn=database.dsn)
    yield fleet
    fleet.kill()


@pytest.fixture
def archived(queue: Queue, fleet: Fleet) -> Callable[[int], Any]:
    """Waits for the end of a message and returns its row of the archive."""
    return lambda published: eventually(lambda: queue.archived(published))


@in_every_mode
def test_the_return_value_is_stored(queue: Queue, archived: Callable[[int], Any], topic: str) -> None:
    published = queue.publish(topic, payload={"do": "return", "value": {"rows": [1, 2.5, None, "é"]}})

    assert archived(published).result == "success"
    assert archived(published).output == {"rows": [1, 2.5, None, "é"]}


@in_every_mode
def test_a_handler_that_returns_none_completes_its_message(
    queue: Queue, archived: Callable[[int], Any], topic: str
) -> None:
    published = queue.publish(topic, payload={"do": "return"})

    assert (archived(published).result, archived(published).output) == ("success", None)


@in_every_mode
def test_a_rejected_message_is_never_retried(
    queue: Queue, journal: Journal, archived: Callable[[int], Any], topic: str
) -> None:
    published = queue.publish(topic, payload={"do": "reject"})

    assert (archived(published).result, archived(published).error) == ("rejected", "not a word of it is true")
    assert len(journal.entries("start", published)) == 1


@in_every_mode
def test_fail_is_final_whatever_attempts_remain(
    queue: Queue, journal: Journal, archived: Callable[[int], Any], topic: str
) -> None:
    published = queue.publish(topic, payload={"do": "fail"})

    assert (archived(published).result, archived(published).error) == ("failed", "the account is closed")
    assert len(journal.entries("start", published)) == 1


@in_every_mode
def test_an_exception_is_retried_until_the_attempts_are_used_up_and_its_traceback_is_kept(
    queue: Queue, journal: Journal, archived: Callable[[int], Any], topic: str
) -> None:
    published = queue.publish(topic, payload={"do": "raise"})

    ended = archived(published)
    assert ended.result == "failed"
    assert [e["attempt"] for e in journal.entries("start", published)] == [1, 2, 3]
    assert [(past["attempt"], past["outcome"]) for past in ended.history] == [(1, "failed"), (2, "failed")]
    assert ended.error.startswith("Traceback")
    assert "work.py" in ended.error
    assert PACKAGE not in ended.error, "frames of pgrouse are left out"
    assert ended.error.rstrip().endswith("ZeroDivisionError: division by zero")


@in_every_mode
def test_retry_counts_an_attempt_and_passes_its_state_to_the_next(
    queue: Queue, archived: Callable[[int], Any], topic: str
) -> None:
    published = queue.publish(topic, payload={"do": "retry", "after": 0.1})

    ended = archived(published)
    assert (ended.result, ended.attempts, ended.output) == ("success", 2, {"resumed": {"page": 7}})
    assert ended.history[0]["error"] == "the shop is shut"


@in_every_mode
def test_defer_counts_no_attempt_and_passes_its_state_to_the_next(
    queue: Queue, archived: Callable[[int], Any], topic: str
) -> None:
    published = queue.publish(topic, payload={"do": "defer", "after": 0.1})

    ended = archived(published)
    assert (ended.result, ended.attempts, ended.output) == ("success", 1, {"resumed": {"page": 8}})
    assert ended.history[0]["outcome"] == "deferred"


@in_every_mode
def test_defer_until_a_time_waits_for_it(queue: Queue, journal: Journal, topic: str) -> None:
    published = queue.publish(topic, payload={"do": "defer until", "after": 0.5})

    eventually(lambda: len(journal.entries("start", published)) >= 2)
    first, second = journal.entries("start", published)[:2]
    assert second["at"] - first["at"] >= 0.5
    queue.call("cancel", [published])


@in_every_mode
@pytest.mark.parametrize("channel", [None, "acme"])
def test_pause_stops_the_topic_or_the_channel_and_counts_no_attempt(
    queue: Queue, archived: Callable[[int], Any], topic: str, channel: str | None
) -> None:
    columns = {} if channel is None else {"channel": channel}
    published = queue.publish(topic, payload={"do": "pause", "after": 0.3, "channel": channel is not None}, **columns)

    ended = archived(published)
    assert (ended.result, ended.attempts, ended.output) == ("success", 1, {"resumed": {"page": 9}})
    (paused,) = queue.rows(
        "SELECT target, detail ->> 'reason' FROM messages.audit"
        " WHERE action = 'pause' AND topic = %s AND target IS NOT DISTINCT FROM %s", [topic, channel]
    )  # fmt: skip
    assert paused == (channel, "429\ufffd")


def test_a_payload_that_does_not_match_its_type_is_rejected_with_the_list_of_problems(
    queue: Queue, journal: Journal, archived: Callable[[int], Any]
) -> None:
    fits = queue.publish("typed", payload={"id": 7, "lines": ["a"]})
    does_not = queue.publish("typed", payload={"id": "seven", "lines": ["a", 2]})

    assert archived(fits).output == 7
    ended = archived(does_not)
    assert ended.result == "rejected"
    assert ended.error.startswith("payload: id: ")
    assert "; lines.1: " in ended.error
    assert "seven" not in ended.error, "values do not belong into an archive that analysts read"
    assert journal.entries("start", does_not) == []


def test_a_body_of_bytes_arrives_as_it_was_published(
    queue: Queue, journal: Journal, archived: Callable[[int], Any]
) -> None:
    published = queue.publish("bytes", body=b"\x00\xff\\x00")

    assert archived(published).result == "success"
    assert journal.entries("start", published)[0]["body"] == list(b"\x00\xff\\x00")


def test_the_context_has_what_the_publisher_set(queue: Queue, archived: Callable[[int], Any]) -> None:
    published = queue.publish(
        "context", payload={}, channel="tenant-1", key="k", headers={"trace": "é"}, max_attempts=9
    )

    assert archived(published).output == {
        "id": published,
        "topic": "context",
        "channel": "tenant-1",
        "key": "k",
        "attempt": 1,
        "runs": 1,
        "max_attempts": 9,
        "headers": {"trace": "é"},
        "state": None,
        "stopping": False,
        "lost": False,
    }
