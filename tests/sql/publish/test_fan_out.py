"""messages.fan_out: a message of a topic with subscribers is copied to the topic of each, in the same transaction."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from psycopg import errors

from tests.sql.queue import Queue

LATER = datetime(2050, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def subscriptions(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.subscription VALUES ('user.changed', 'mail'), ('user.changed', 'search')")


def copies(queue: Queue) -> list[tuple[str, Any, int]]:
    rows = queue.rows("SELECT * FROM messages.message ORDER BY topic, id")
    return [(row.topic, row.payload, row.origin_id) for row in rows]


def test_each_subscriber_gets_an_ordinary_message_that_names_its_origin(queue: Queue) -> None:
    source = queue.publish("user.changed", payload={"id": 7})

    assert copies(queue) == [("mail", {"id": 7}, source), ("search", {"id": 7}, source)]
    assert queue.claim_one("mail").payload == '{"id": 7}'


def test_the_message_itself_is_a_success_that_names_its_copies(queue: Queue) -> None:
    source = queue.publish("user.changed")

    archived = queue.archived(source)
    by_topic = {row.topic: row.id for row in queue.rows("SELECT topic, id FROM messages.message")}
    assert (archived.result, archived.handled_by, archived.attempts) == ("success", "fan-out", 0)
    assert archived.output == {"fanned_out": by_topic}
    assert queue.message(source) is None


@pytest.mark.parametrize("key", [None, "k"])
def test_a_copy_has_everything_that_describes_the_message(queue: Queue, key: str | None) -> None:
    described = {"key": key, "channel": "c", "priority": 1, "headers": {"h": 1}, "max_attempts": 7}
    queue.publish("user.changed", body=b"x", available_at=LATER, expires_at=LATER, **described)

    rows = queue.rows("SELECT * FROM messages.message ORDER BY topic")
    assert [row.topic for row in rows] == ["mail", "search"]
    for row in rows:
        assert {name: getattr(row, name) for name in described} == described
        assert (row.body, row.payload, row.available_at, row.expires_at) == (b"x", None, LATER, LATER)


def test_each_copy_has_its_own_retries_and_its_own_end(queue: Queue) -> None:
    queue.policy("mail", max_attempts=3)
    queue.publish("user.changed")

    queue.settle("retry", queue.claim("mail", "search"), ["boom", "boom"])

    assert [row.topic for row in queue.rows("SELECT topic FROM messages.message")] == ["mail"]
    assert [row.topic for row in queue.rows("SELECT topic FROM messages.dead")] == ["search"]


def test_all_copies_are_published_or_none(queue: Queue) -> None:
    with queue.conn.transaction(force_rollback=True):
        queue.publish("user.changed")
    queue.policy("search", max_payload_bytes=3)

    with pytest.raises(psycopg.Error) as caught:
        queue.publish("user.changed", payload={"too": "long"})

    assert caught.value.sqlstate == "PGR04"
    assert copies(queue) == []
    assert queue.value("SELECT count(*) FROM messages.message_archive") == 0


def test_a_topic_that_subscribes_to_itself_runs_its_messages_too(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.subscription VALUES ('user.changed', 'user.changed')")

    source = queue.publish("user.changed")

    assert copies(queue) == [("mail", 1, source), ("search", 1, source), ("user.changed", 1, None)]
    assert queue.message(source).claim_id is None


def test_subscribers_of_subscribers_get_copies_from_them(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.subscription VALUES ('mail', 'mail.de'), ('mail', 'mail.en')")

    source = queue.publish("user.changed")

    between = queue.archived(source).output["fanned_out"]["mail"]
    assert copies(queue) == [("mail.de", 1, between), ("mail.en", 1, between), ("search", 1, source)]
    assert set(queue.archived(between).output["fanned_out"]) == {"mail.de", "mail.en"}


def test_a_bulk_insert_is_copied_completely(queue: Queue) -> None:
    sources = queue.publish_many(2000, "user.changed")

    expected = [("mail", n, source) for n, source in enumerate(sources, 1)]
    expected += [("search", n, source) for n, source in enumerate(sources, 1)]
    assert sorted(copies(queue)) == sorted(expected)
    assert queue.value("SELECT count(*) FROM messages.message_archive") == 2000


def test_topics_without_subscribers_are_left_alone(queue: Queue) -> None:
    published = queue.publish("other")

    assert queue.ids() == [published]


def test_copies_count_in_the_topic_of_the_subscriber_and_dropped_ones_are_reported(queue: Queue) -> None:
    queue.policy("search", max_depth=1, on_full="drop")
    first, second = queue.publish("user.changed"), queue.publish("user.changed")

    assert [topic for topic, _, _ in copies(queue)] == ["mail", "mail", "search"]
    assert queue.archived(first).output["fanned_out"]["search"] is not None
    assert queue.archived(second).output["fanned_out"]["search"] is None


def test_a_full_subscriber_refuses_the_publish(queue: Queue) -> None:
    queue.policy("search", max_depth=1)
    queue.publish("user.changed")

    with pytest.raises(psycopg.Error, match="topic search is full"):
        queue.publish("user.changed")

    assert len(copies(queue)) == 2


@pytest.mark.parametrize(
    ("mode", "mail", "search"), [("replace", [2], [2, 1]), ("ignore", [1], [2, 1]), ("append", [[1, 2]], [[2], [1]])]
)
def test_on_conflict_of_the_publisher_applies_to_the_keys_of_copies(
    queue: Queue, mode: str, mail: list[Any], search: list[Any]
) -> None:
    queue.send(1, "user.changed", key="k", on_conflict=mode)
    queue.claim("search")

    sent = queue.send(2, "user.changed", key="k", on_conflict=mode)

    assert sent.outcome == "inserted"
    payloads = "SELECT payload FROM messages.message WHERE topic = %s ORDER BY id DESC"
    assert [row.payload for row in queue.rows(payloads, ["mail"])] == mail
    assert [row.payload for row in queue.rows(payloads, ["search"])] == search


def test_a_waiting_key_of_a_subscriber_refuses_an_insert(queue: Queue) -> None:
    queue.publish("user.changed", key="k")

    with pytest.raises(errors.UniqueViolation, match='key "k" of topic mail is in use'):
        queue.publish("user.changed", key="k")


def test_a_subscriber_whose_key_is_held_gets_no_copy_and_the_others_do(queue: Queue) -> None:
    queue.policy("mail", key_ttl="1 hour")
    queue.send(1, "user.changed", key="k", on_conflict="ignore")
    queue.settle("complete", queue.claim("mail", "search"))

    queue.send(2, "user.changed", key="k", on_conflict="ignore")

    assert [(topic, payload) for topic, payload, _ in copies(queue)] == [("search", 2)]


def test_a_redrive_is_not_copied_again(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.subscription VALUES ('user.changed', 'user.changed')")
    source = queue.publish("user.changed")
    queue.settle("fail", queue.claim("user.changed"), ["boom"])

    queue.rows("SELECT * FROM messages.redrive(%s)", [[source]])

    assert [topic for topic, _, _ in copies(queue)] == ["mail", "search", "user.changed"]


def test_copies_send_notifications(queue: Queue, listen: Any) -> None:
    listener = listen("new_message")
    queue.arm("mailer", ["mail"])

    queue.publish("user.changed")

    (copy,) = (row.id for row in queue.rows("SELECT id FROM messages.message WHERE topic = 'mail'"))
    assert set(listener.received()) & {str(copy), "mail"}


def test_a_publisher_needs_no_right_for_copies(queue: Queue) -> None:
    with queue.conn.transaction():
        queue.conn.execute("SET LOCAL ROLE messages_publisher")
        queue.publish("user.changed")

    assert len(copies(queue)) == 2


def test_a_deleted_subscription_counts_at_once(queue: Queue) -> None:
    queue.conn.execute("DELETE FROM messages.subscription")

    published = queue.publish("user.changed")

    assert queue.ids() == [published]
