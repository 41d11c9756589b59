"""Alerts: their groups, silences, replay and end."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from psycopg import errors
from psycopg.types.json import Jsonb

from tests.server.postgres import Database
from tests.sql.queue import Listener, Queue
from tests.sql.sinks import RULES, Sink, raise_alert

# messages.group_new_alerts: adds new alerts of a sink to its incidents; test_delivery.py shows the same from outside.


@pytest.fixture
def sink(queue: Queue) -> Sink:
    sink = Sink(queue)
    sink.next()
    return sink


def gather(queue: Queue) -> int:
    taken: int = queue.value("SELECT messages.group_new_alerts('ops', %s)", [Jsonb(RULES)])
    return taken


def test_an_alert_that_was_written_under_a_savepoint_and_commits_late_is_taken_too(
    sink: Sink, queue: Queue, database: Database
) -> None:
    late = Queue(database.connect(autocommit=False))
    late.conn.execute("SELECT pg_current_xact_id()")
    with late.conn.transaction():
        raise_alert(late)
    raise_alert(queue)
    assert gather(queue) == 1

    late.conn.commit()

    assert gather(queue) == 1


def test_alerts_of_a_cluster_with_higher_transaction_ids_are_taken_once(queue: Queue) -> None:
    raise_alert(queue)
    queue.conn.execute("UPDATE messages.alert SET xid = '9000000000'")
    sink = Sink(queue)
    assert len(sink.deliver_all()) == 1
    raise_alert(queue)

    assert (gather(queue), gather(queue)) == (1, 0)


# messages.replay_alerts: sends notifications to sinks again.


def test_delivered_notifications_are_sent_again_in_their_order_with_new_ids(queue: Queue) -> None:
    sink = Sink(queue)
    raise_alert(queue, "a")
    raise_alert(queue, "b")
    sink.deliver_all()
    ids = [str(row.id) for row in queue.rows("SELECT id FROM messages.alert_delivery ORDER BY seq")]

    assert queue.call("replay_alerts") == 2

    again = sink.deliver_all()
    assert [body["groups"][0]["topic"] for body in again] == ["a", "b"]
    assert [body["replay_of"] for body in again] == ids


def test_abandoned_notifications_are_sent_again_and_unsettled_ones_are_not(queue: Queue) -> None:
    sink = Sink(queue)
    raise_alert(queue, "aside")
    sink.settle(sink.next(), "refused", abandon=True)
    raise_alert(queue, "waiting")
    sink.next()

    assert queue.call("replay_alerts", "ops") == 1
    assert [body["groups"][0]["topic"] for body in sink.deliver_all()] == ["waiting", "aside"]


def test_a_replayed_notification_is_replayed_only_by_its_id(queue: Queue) -> None:
    sink = Sink(queue)
    raise_alert(queue)
    sink.deliver_all()
    queue.call("replay_alerts")
    sink.deliver_all()

    assert queue.call("replay_alerts") == 1
    replayed = queue.value("SELECT id FROM messages.alert_delivery WHERE replay_of IS NOT NULL ORDER BY seq LIMIT 1")
    assert queue.call("replay_alerts", None, timedelta(hours=1), replayed) == 1


def test_only_notifications_of_the_range_and_the_sink_are_replayed(queue: Queue) -> None:
    queue.stop_clock("2026-01-01")
    raise_alert(queue)
    for name in ("a", "b"):
        Sink(queue, name).deliver_all()
    queue.later("2 hours")

    assert queue.call("replay_alerts") == 0
    assert queue.call("replay_alerts", "a", timedelta(hours=3)) == 1


def test_it_notifies_the_deliverers(queue: Queue, listen: Callable[..., Listener]) -> None:
    raise_alert(queue)
    Sink(queue).deliver_all()
    listener = listen("alert")

    queue.call("replay_alerts")

    assert listener.received() == ["replay"]


def test_an_invalid_range_is_refused(queue: Queue) -> None:
    with pytest.raises(errors.InvalidParameterValue):
        queue.call("replay_alerts", None, timedelta(0))


# messages.silence: matching alerts are not sent for a while.


def test_it_records_user_end_and_reason(queue: Queue) -> None:
    queue.stop_clock("2026-01-01")
    queue.conn.execute("SELECT set_config('messages.actor', 'ann', false)")

    number = queue.call("silence", topic="orders.*", reason="known", **{"for": "2 hours"})

    found = queue.row(
        "SELECT s.*, s.until - messages.now() = '2 hours' AS right FROM messages.silence AS s WHERE id = %s", [number]
    )
    assert (found.topic, found.created_by, found.reason, found.right) == ("orders.*", "ann", "known", True)


def test_an_audit_entry_is_written(queue: Queue) -> None:
    number = queue.call("silence", topic="t", **{"for": "1 hour"})

    assert queue.row("SELECT action, topic, target FROM messages.audit") == ("alert.silence", "t", str(number))


@pytest.mark.parametrize(
    "given",
    [
        {"for": "1 hour"},
        {"topic": "t"},
        {"topic": "t", "for": "1 hour", "until": "2999-01-01"},
        {"topic": "t", "for": "0 s"},
        {"topic": "t", "until": "2020-01-01"},
        {"topic": "t", "for": "11 years"},
    ],
)
def test_a_silence_that_matches_nothing_or_has_no_end_is_refused(queue: Queue, given: dict[str, Any]) -> None:
    with pytest.raises((errors.InvalidParameterValue, errors.NullValueNotAllowed)):
        queue.call("silence", **given)


# messages.unsilence: ends a silence before its time.


def test_it_ends_a_silence_once_and_writes_an_audit_entry(queue: Queue) -> None:
    number = queue.call("silence", topic="t", **{"for": "1 hour"})

    assert (queue.call("unsilence", number), queue.call("unsilence", number)) == (True, False)
    assert queue.call("silence_of", "dead_message", "t", None) is None
    assert queue.value("SELECT count(*) FROM messages.audit WHERE action = 'alert.unsilence'") == 1


def test_unsilencing_an_unknown_silence_returns_false(queue: Queue) -> None:
    assert queue.call("unsilence", 4711) is False


# messages.silence_of: which silence applies to an alert.


@pytest.mark.parametrize(
    ("silence", "alert", "silenced"),
    [
        ({"topic": "orders.*"}, ("dead_message", "orders.new", "f"), True),
        ({"topic": "orders.*"}, ("dead_message", "orders", "f"), False),
        ({"topic": "*"}, ("cron_late", None, None), True),
        ({"kind": "dead_*"}, ("dead_message", "t", "f"), True),
        ({"kind": "backlog"}, ("backlog", "t", None), True),
        ({"kind": "backlog"}, ("no_worker", "t", None), False),
        ({"error_fingerprint": "f"}, ("dead_message", "t", "f"), True),
        ({"error_fingerprint": "f"}, ("dead_message", "t", "g"), False),
        ({"error_fingerprint": "f"}, ("dead_message", "t", None), False),
        ({"error_fingerprint": "f", "topic": "u"}, ("dead_message", "t", "f"), False),
    ],
)
def test_an_alert_must_match_all_of_a_silence(
    queue: Queue, silence: dict[str, Any], alert: tuple[str | None, ...], silenced: bool
) -> None:
    queue.call("silence", **silence, **{"for": "1 hour"})

    assert (queue.call("silence_of", *alert) is not None) is silenced


def test_the_longest_of_several_silences_counts_until_it_is_over(queue: Queue) -> None:
    queue.stop_clock("2026-01-01")
    queue.call("silence", topic="t", **{"for": "1 hour"})
    longest = queue.call("silence", topic="*", **{"for": "2 hours"})

    assert queue.call("silence_of", "dead_message", "t", None) == longest
    queue.later("2 hours")
    assert queue.call("silence_of", "dead_message", "t", None) is None
