"""payload_schema: the daemon checks a payload before the handler runs, by the current row of the topic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.daemon.process import AT_ONCE_S, Daemon, Fleet, Journal
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue

Start = Callable[..., Daemon]

WANTS_ID = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}
HANDLERS = {
    "async": "work:echo",
    "thread": "work:echo_in_thread",
    "process": {"handler": "work:echo_in_thread", "isolation": "process", "concurrency": 1},
    "ack_first": {"handler": "work:echo", "ack_policy": "ack_first"},
}


def ends(queue: Queue, payload: Any, topic: str = "job") -> Any:
    published = queue.publish(topic, payload=Jsonb(payload))
    return eventually(lambda: queue.archived(published))


@pytest.mark.parametrize("where", list(HANDLERS))
def test_a_payload_that_does_not_match_is_rejected_unrun_with_the_list_of_problems(
    start: Start, queue: Queue, journal: Journal, where: str
) -> None:
    queue.policy("job", payload_schema=WANTS_ID, max_attempts=3)
    start({"job": HANDLERS[where]})

    fits, does_not = ends(queue, {"id": 7}), ends(queue, {"id": "secret"})

    assert fits.result == "success"
    assert (does_not.result, does_not.attempts) == ("rejected", 1)
    assert does_not.error == 'payload_schema: id: the value is not of type "integer"'
    assert journal.entries("start", does_not.id) == []


def test_a_body_is_rejected_if_the_schema_requires_json(start: Start, queue: Queue) -> None:
    queue.policy("job", payload_schema=WANTS_ID)
    start({"job": "work:take_bytes"})
    published = queue.publish("job", body=b"x")

    ended = eventually(lambda: queue.archived(published))

    assert ended.result == "rejected"
    assert ended.error.startswith("payload_schema: (whole): it has a body")


def test_a_schema_applies_as_soon_as_it_is_written_and_until_it_is_removed(start: Start, queue: Queue) -> None:
    daemon = start({"job": "work:echo"})
    assert ends(queue, {}).result == "success"

    queue.policy("job", payload_schema=WANTS_ID)
    eventually(lambda: ends(queue, {}).result == "rejected", within_s=AT_ONCE_S)
    queue.policy("job", payload_schema={})
    eventually(lambda: ends(queue, {}).result == "success", within_s=AT_ONCE_S)
    queue.policy("job", payload_schema=WANTS_ID)
    eventually(lambda: ends(queue, {}).result == "rejected", within_s=AT_ONCE_S)
    queue.conn.execute("DELETE FROM messages.topic WHERE topic = 'job'")
    eventually(lambda: ends(queue, {}).result == "success", within_s=AT_ONCE_S)
    assert daemon.stop() == 0


def test_a_change_is_found_within_a_second_without_notifications(start: Start, queue: Queue) -> None:
    daemon = start({"job": "work:echo"}, poll_interval="0.3s")
    queue.conn.execute("DROP TRIGGER topic_changed ON messages.topic")

    queue.policy("job", payload_schema=WANTS_ID)

    eventually(lambda: ends(queue, {}).result == "rejected", within_s=AT_ONCE_S)
    assert daemon.alive


def test_the_schema_of_the_defaults_applies_to_topics_without_their_own(start: Start, queue: Queue) -> None:
    queue.policy("*", payload_schema=WANTS_ID)
    queue.policy("lenient", payload_schema={})
    start({"job": "work:echo", "lenient": "work:echo"})

    assert ends(queue, {}).result == "rejected"
    assert ends(queue, {}, "lenient").result == "success"


def test_an_invalid_schema_is_logged_once_and_rejects_nothing(start: Start, queue: Queue) -> None:
    queue.policy("job", payload_schema={"pattern": "(?=look ahead)"})
    daemon = start({"job": "work:echo"})

    assert {ends(queue, each).result for each in ("a", "b", "c")} == {"success"}

    (event,) = daemon.events("payload_schema.unusable", topic="job")
    assert event["level"] == "error"
    assert "no look-around" in event["reason"]


def test_a_daemon_that_cannot_check_the_schema_of_its_topic_exits_and_names_the_missing_package(
    fleet: Fleet, database: Database, queue: Queue
) -> None:
    queue.policy("job", payload_schema=WANTS_ID)

    daemon = fleet.launch({"job": "unchecked:echo"}, dsn=database.dsn)

    assert daemon.exit_code() == 78
    assert "topics job: payload_schema: it needs jsonschema-rs" in daemon.log.read_text()
    assert "pip install 'pgrouse[schemas]'" in daemon.log.read_text()


def test_a_daemon_that_cannot_check_a_later_schema_runs_and_rejects_no_message(
    start: Start, queue: Queue, journal: Journal
) -> None:
    daemon = start({"job": "unchecked:echo"})
    queue.policy("job", payload_schema=WANTS_ID)
    daemon.event("payload_schema.unusable", topic="job")

    published = queue.publish("job", payload=Jsonb({"id": 7}))
    eventually(
        lambda: queue.value(
            "SELECT available_at > now() + interval '5 s' FROM messages.message WHERE id = %s", [published]
        )
    )

    waiting = queue.message(published)
    assert (waiting.attempts, waiting.claim_id) == (0, None)
    assert journal.entries("start", published) == []
