"""Deliveries of alerts: who gets which, once each, and what a failed delivery does."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from psycopg import sql

from tests.server.postgres import Database
from tests.sql.queue import Queue
from tests.sql.sinks import RULES, Sink, raise_alert

# messages.claim_delivery: the next step of a deliverer of alerts.


@pytest.fixture
def sink(queue: Queue) -> Sink:
    return Sink(queue)


def test_the_first_call_of_a_sink_registers_it(sink: Sink, queue: Queue) -> None:
    got = sink.next()

    assert (got.held, got.id, got.wait_s) == (False, None, None)
    assert queue.value("SELECT held_by FROM messages.alert_sink") == "h"


def test_a_dead_message_becomes_a_notification(sink: Sink, queue: Queue) -> None:
    died = queue.publish()
    queue.settle("fail", queue.claim(), ["ValueError: bad price"])

    got = sink.next()

    assert (got.message["status"], got.message["count"], got.message["group_count"], got.attempt) == ("firing", 1, 1, 1)
    (group,) = got.message["groups"]
    assert (group["topic"], group["result"], group["error"]) == ("t", "failed", "ValueError: bad price")
    assert (group["first_message_id"], group["last_message_id"]) == (died, died)


def test_an_unsettled_notification_is_returned_again_with_the_same_id(sink: Sink, queue: Queue) -> None:
    raise_alert(queue)
    first = sink.next()
    raise_alert(queue, count=7)

    again = sink.next()

    assert (again.id, again.message, again.attempt) == (first.id, first.message, 2)


def test_the_first_alert_of_a_group_waits_for_the_burst(queue: Queue) -> None:
    queue.stop_clock("2026-01-01")
    sink = Sink(queue, group_wait=10)
    raise_alert(queue)
    assert sink.next().wait_s == pytest.approx(10)
    queue.later("4 s")
    raise_alert(queue, count=9)
    assert sink.next().wait_s == pytest.approx(6)

    queue.later("6 s")

    assert [body["count"] for body in sink.deliver_all()] == [10]


def test_a_group_is_notified_once_per_interval_with_the_number_since_then(sink: Sink, queue: Queue) -> None:
    queue.stop_clock("2026-01-01")
    raise_alert(queue)
    assert [body["count"] for body in sink.deliver_all()] == [1]
    for _ in range(9):
        queue.later("1 minute")
        raise_alert(queue, count=2)
        assert sink.deliver_all() == []

    queue.later("1 minute")

    (body,) = sink.deliver_all()
    assert (body["count"], body["groups"][0]["total"], body["groups"][0]["nth"]) == (18, 19, 2)


def test_another_group_does_not_wait_for_the_first(sink: Sink, queue: Queue) -> None:
    raise_alert(queue)
    sink.deliver_all()
    raise_alert(queue, error_fingerprint="0" * 16)
    raise_alert(queue, topic="other")
    raise_alert(queue, result="expired")

    assert len(sink.deliver_all()) == 3


def test_a_group_that_was_quiet_starts_again(sink: Sink, queue: Queue) -> None:
    queue.stop_clock("2026-01-01")
    raise_alert(queue, count=5)
    sink.deliver_all()

    queue.later("11 minutes")
    sink.next()
    raise_alert(queue)

    (body,) = sink.deliver_all()
    assert (body["count"], body["groups"][0]["total"], body["groups"][0]["nth"]) == (1, 1, 1)


def test_a_flood_is_one_notification_with_the_exact_number(sink: Sink, queue: Queue) -> None:
    queue.conn.execute(
        "INSERT INTO messages.alert (topic, result, error_fingerprint, count) "
        "SELECT 't', 'failed', 'f', 1 + n % 3 FROM generate_series(0, 4999) AS n"
    )

    (body,) = sink.deliver_all()

    assert body["count"] == queue.value("SELECT sum(count) FROM messages.alert") == 9_999


def test_a_flood_of_many_groups_is_one_notification_too(sink: Sink, queue: Queue) -> None:
    queue.conn.execute(
        "INSERT INTO messages.alert (topic, result, error_fingerprint, count) "
        "SELECT 't', 'failed', n::text, n FROM generate_series(1, 300) AS n"
    )

    (body,) = sink.deliver_all()

    assert (body["count"], body["group_count"], len(body["groups"])) == (45_150, 300, 100)
    assert body["groups"][0]["count"] == 300, "the largest first"


def test_a_sink_gets_no_more_notifications_per_minute_than_its_limit_and_loses_none(queue: Queue) -> None:
    queue.stop_clock("2026-01-01")
    sink = Sink(queue, rate_limit_per_minute=3)
    for n in range(5):
        raise_alert(queue, error_fingerprint=str(n))

    assert len(sink.deliver_all()) == 3
    assert sink.next().wait_s == pytest.approx(20)
    queue.later("20 s")
    assert len(sink.deliver_all()) == 1
    queue.later("1 minute")
    assert len(sink.deliver_all()) == 1


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ({"topics": ["orders.*"]}, {"orders.new", "orders.old"}),
        ({"topics": ["orders.new", "mail"]}, {"orders.new", "mail"}),
        ({"kinds": ["expired"]}, {"mail"}),
        ({"kinds": ["dead_message"]}, {"orders.new", "orders.old", "mail"}),
        ({"kinds": ["backlog"]}, {"slow"}),
        ({"kinds": ["breaker", "rejected"]}, set()),
        ({"topics": ["*"]}, {"orders.new", "orders.old", "mail", "slow", None}),
        ({"topics": ["mail"], "kinds": ["failed"]}, set()),
    ],
)
def test_a_sink_gets_only_alerts_that_its_rules_want(
    queue: Queue, rules: dict[str, Any], expected: set[str | None]
) -> None:
    raise_alert(queue, "orders.new")
    raise_alert(queue, "orders.old")
    raise_alert(queue, "mail", result="expired")
    raise_alert(queue, "slow", kind="backlog", result="begun", error_fingerprint=None)
    raise_alert(queue, None, kind="cron_late", result="begun", error_fingerprint=None)

    bodies = Sink(queue, **rules).deliver_all()

    assert {message["groups"][0]["topic"] for message in bodies} == expected


def test_alerts_that_differ_only_in_other_columns_are_one_group(queue: Queue) -> None:
    raise_alert(queue, "a", error_fingerprint="1")
    raise_alert(queue, "b", error_fingerprint="2")

    (body,) = Sink(queue, group_by=["result"]).deliver_all()

    (group,) = body["groups"]
    assert (group["topic"], group["result"], group["fingerprint"], group["count"]) == (None, "failed", None, 2)


def test_a_condition_is_notified_when_it_begins_and_when_it_ends(sink: Sink, queue: Queue) -> None:
    raise_alert(queue, kind="backlog", result="begun", sample_error="old", fix="add workers", error_fingerprint=None)
    (begun,) = sink.deliver_all()
    raise_alert(queue, kind="backlog", result="ended", sample_error="old", error_fingerprint=None)

    (ended,) = sink.deliver_all()

    assert (begun["status"], begun["groups"][0]["fix"]) == ("firing", "add workers")
    assert (ended["status"], ended["groups"][0]["nth"]) == ("resolved", 2)
    assert sink.deliver_all() == []


def test_a_condition_that_began_and_ended_before_a_delivery_is_one_notification(queue: Queue) -> None:
    queue.stop_clock("2026-01-01")
    sink = Sink(queue, group_wait=10)
    raise_alert(queue, kind="breaker", result="open", error_fingerprint=None)
    sink.next()
    raise_alert(queue, kind="breaker", result="closed", error_fingerprint=None)
    queue.later("10 s")

    bodies = sink.deliver_all()

    assert [(message["status"], message["count"]) for message in bodies] == [("resolved", 1)]


def test_the_end_of_a_condition_that_a_sink_was_not_notified_of_is_not_sent(sink: Sink, queue: Queue) -> None:
    raise_alert(queue, kind="backlog", result="ended", error_fingerprint=None)

    assert sink.deliver_all() == []


def test_a_condition_that_continues_is_notified_again(sink: Sink, queue: Queue) -> None:
    queue.stop_clock("2026-01-01")
    raise_alert(queue, kind="cron_late", topic=None, result="begun", error_fingerprint=None)
    sink.deliver_all()
    queue.later("59 minutes")
    assert sink.deliver_all() == []

    queue.later("1 minute")

    assert [body["status"] for body in sink.deliver_all()] == ["firing"]


def test_an_open_breaker_is_notified_again_after_each_repeat_and_not_at_each_failed_probe(queue: Queue) -> None:
    sink = Sink(queue, kinds=["breaker"])
    sink.next()
    queue.stop_clock(queue.value("SELECT (clock_timestamp() + interval '1 day')::text"))
    queue.policy(breaker={"min_attempts": 4, "pause": "5m"})
    queue.publish_many(100)
    queue.settle("retry", queue.claim(limit=4), ["boom"] * 4)
    statuses = [(0, message["status"]) for message in sink.deliver_all()]
    for minutes in range(5, 125, 5):
        queue.later("5 minutes")
        queue.settle("retry", queue.claim(limit=1), ["boom"])
        statuses += [(minutes, message["status"]) for message in sink.deliver_all()]
    queue.later("5 minutes")
    queue.settle("complete", queue.claim(limit=1))
    statuses += [(125, message["status"]) for message in sink.deliver_all()]

    assert statuses == [(0, "firing"), (60, "firing"), (120, "firing"), (125, "resolved")]


def test_an_escalation_is_notified_at_a_number_of_alerts(queue: Queue) -> None:
    sink = Sink(queue, escalate_count=100)
    raise_alert(queue, count=99)
    assert sink.deliver_all() == []

    raise_alert(queue)

    (body,) = sink.deliver_all()
    assert (body["count"], body["groups"][0]["escalated"]) == (100, True)


def test_an_escalation_is_notified_after_a_duration(queue: Queue) -> None:
    queue.stop_clock("2026-01-01")
    sink = Sink(queue, escalate_after=900)
    raise_alert(queue, kind="backlog", result="begun", error_fingerprint=None)
    raise_alert(queue, "dying")
    assert sink.next().wait_s == pytest.approx(900)
    for _ in range(2):
        queue.later("5 minutes")
        raise_alert(queue, "dying")
        assert sink.deliver_all() == []

    queue.later("5 minutes")
    raise_alert(queue, "dying")

    assert {body["groups"][0]["topic"]: body["count"] for body in sink.deliver_all()} == {"t": 1, "dying": 4}


def test_an_escalation_is_not_notified_if_the_condition_ended_in_time(queue: Queue) -> None:
    queue.stop_clock("2026-01-01")
    sink = Sink(queue, escalate_after=900)
    raise_alert(queue, kind="backlog", result="begun", error_fingerprint=None)
    sink.next()
    queue.later("5 minutes")
    raise_alert(queue, kind="backlog", result="ended", error_fingerprint=None)
    queue.later("1 hour")

    assert sink.deliver_all() == []


def test_a_silenced_condition_is_notified_after_the_silence_if_it_continues(sink: Sink, queue: Queue) -> None:
    queue.stop_clock("2026-01-01")
    queue.call("silence", None, "t", **{"for": "1 hour"})
    for _ in range(12):
        raise_alert(queue)
        assert sink.deliver_all() == []
        queue.later("5 minutes")

    (body,) = sink.deliver_all()

    assert body["count"] == 12


def test_a_condition_that_ended_before_its_silence_is_never_notified(sink: Sink, queue: Queue) -> None:
    queue.stop_clock("2026-01-01")
    queue.call("silence", None, "t", **{"for": "1 hour"})
    raise_alert(queue, count=5)
    raise_alert(queue, kind="backlog", result="begun", error_fingerprint=None)
    sink.next()
    queue.later("30 minutes")
    raise_alert(queue, kind="backlog", result="ended", error_fingerprint=None)
    sink.next()
    queue.later("31 minutes")

    assert sink.deliver_all() == []
    assert queue.value("SELECT sum(silenced) FROM messages.alert_incident WHERE kind = 'dead_message'") == 5


def test_ending_the_silence_lets_the_condition_be_notified(sink: Sink, queue: Queue) -> None:
    queue.stop_clock("2026-01-01")
    silence = queue.call("silence", None, "t", **{"for": "1 hour"})
    raise_alert(queue)
    assert sink.deliver_all() == []

    queue.call("unsilence", silence)
    queue.later("10 s")

    assert len(sink.deliver_all()) == 1


def test_alerts_that_commit_late_are_not_skipped_and_none_is_sent_twice(queue: Queue, database: Database) -> None:
    sink = Sink(queue, group_interval=1)
    late = Queue(database.connect(autocommit=False))
    raise_alert(late, topic="late")
    raise_alert(queue, topic="early")
    early = sink.deliver_all()

    late.conn.commit()

    bodies = early + sink.deliver_all()
    assert [message["groups"][0]["topic"] for message in bodies] == ["early", "late"]


def test_an_open_transaction_does_not_delay_other_alerts(queue: Queue, database: Database) -> None:
    sink = Sink(queue)
    open_one = Queue(database.connect(autocommit=False))
    raise_alert(open_one, topic="late")

    for n in range(3):
        raise_alert(queue, topic=str(n))
        assert len(sink.deliver_all()) == 1

    open_one.conn.rollback()
    assert sink.deliver_all() == []


def test_every_alert_of_many_interleaved_transactions_is_sent_exactly_once(queue: Queue, database: Database) -> None:
    sink = Sink(queue, group_by=[], group_interval=0.001)
    writers = [Queue(database.connect(autocommit=False)) for _ in range(8)]
    count = 0
    for n in range(40):
        raise_alert(writers[n % 8], count=n + 1)
        if n % 3 == 0:
            writers[(n * 5) % 8].conn.commit()
        if n % 2:
            count += sum(message["count"] for message in sink.deliver_all())
    for writer in writers:
        writer.conn.commit()

    queue.later("1 s")

    assert count + sum(message["count"] for message in sink.deliver_all()) == sum(range(1, 41))


def test_a_new_sink_begins_with_the_undelivered_alerts_of_the_last_hour(queue: Queue) -> None:
    queue.stop_clock("2026-01-01")
    raise_alert(queue, "old")
    queue.later("2 hours")
    raise_alert(queue, "delivered")
    Sink(queue, "first").deliver_all()
    raise_alert(queue, "new")

    bodies = Sink(queue, "second").deliver_all()

    assert [message["groups"][0]["topic"] for message in bodies] == ["new"]


def test_a_database_that_was_restored_from_another_cluster_loses_no_new_alert(sink: Sink, queue: Queue) -> None:
    sink.next()
    queue.conn.execute("UPDATE messages.alert_sink SET system_identifier = '1', position = '9000000:9000000:'")
    raise_alert(queue)

    assert len(sink.deliver_all()) == 1


# One deliverer at a time


def test_while_one_deliverer_holds_the_sink_no_other_gets_a_notification(queue: Queue, database: Database) -> None:
    raise_alert(queue)
    Sink(queue, holder="a").next(hold_s=300)

    other = Sink(Queue(database.connect()), holder="b").next()

    assert (other.held, other.id) == (True, None)
    assert 200 < other.wait_s <= 300


def test_a_deliverer_whose_server_process_is_gone_is_replaced_at_once(
    queue: Queue, database: Database, eventually: Callable[..., Any]
) -> None:
    raise_alert(queue)
    conn = database.connect()
    first = Sink(Queue(conn), holder="a").next()
    conn.close()

    second = eventually(lambda: (got := Sink(queue, holder="b").next()).id and got)

    assert (second.id, second.attempt, second.fence) == (first.id, 2, first.fence + 1)


def test_a_frozen_deliverer_is_replaced_after_its_hold_and_can_no_longer_settle(
    queue: Queue, database: Database
) -> None:
    raise_alert(queue)
    frozen = Sink(Queue(database.connect()), holder="a")
    held = frozen.next(hold_s=0.01)
    queue.later("1 minute")

    second = Sink(queue, holder="b").next()

    assert second.id == held.id
    assert frozen.settle(held) is False
    assert Sink(queue, holder="b").settle(second) is True


def test_the_position_is_read_from_an_index(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.alert (topic, result) SELECT 't', 'failed' FROM generate_series(1, 5000)")
    sink = Sink(queue)
    sink.deliver_all()
    queue.conn.execute("ANALYZE messages.alert")
    raise_alert(queue)
    sink.deliver_all()

    call = sql.SQL("SELECT * FROM messages.claim_delivery('ops', 'webhook', 'h', {}, '30 s')").format(
        sql.Literal(json.dumps(RULES))
    )

    assert queue.buffers(call.as_string(queue.conn)) < 200


# messages.settle_delivery: the result of a notification that was sent to a sink.


@pytest.fixture
def settle_delivery_sink(queue: Queue) -> Sink:
    queue.stop_clock("2026-01-01")
    return Sink(queue)


def test_a_delivered_notification_is_marked_and_not_returned_again(settle_delivery_sink: Sink, queue: Queue) -> None:
    alert, other = raise_alert(queue), raise_alert(queue, "other")
    got = settle_delivery_sink.next()

    assert settle_delivery_sink.settle(got) is True

    delivered = {row.id for row in queue.rows("SELECT id FROM messages.alert WHERE delivered_at IS NOT NULL")}
    assert delivered == {alert}
    assert settle_delivery_sink.next().message["groups"][0]["topic"] == "other"
    assert other not in delivered


def test_only_the_alerts_of_the_notification_count_as_delivered(queue: Queue) -> None:
    raise_alert(queue, "mine.a")
    unwanted = raise_alert(queue, "theirs")
    raise_alert(queue, "mine.b")

    Sink(queue, group_by=[], topics=["mine.*"]).deliver_all()

    assert queue.value("SELECT array_agg(id) FROM messages.alert WHERE delivered_at IS NULL") == [unwanted]


def test_a_failed_notification_is_returned_again_at_its_time_and_delays_those_behind_it(
    settle_delivery_sink: Sink, queue: Queue
) -> None:
    raise_alert(queue)
    got = settle_delivery_sink.next()
    settle_delivery_sink.settle(got, "no answer", retry_in=timedelta(seconds=30))
    raise_alert(queue, "behind")

    assert (settle_delivery_sink.next().id, settle_delivery_sink.next().wait_s) == (None, 30)
    queue.later("30 s")
    again = settle_delivery_sink.next()

    assert (again.id, again.attempt) == (got.id, 2)


def test_an_abandoned_notification_delays_no_other(settle_delivery_sink: Sink, queue: Queue) -> None:
    raise_alert(queue)
    settle_delivery_sink.settle(settle_delivery_sink.next(), "refused", abandon=True)
    raise_alert(queue, "behind")

    assert [body["groups"][0]["topic"] for body in settle_delivery_sink.deliver_all()] == ["behind"]
    assert queue.value("SELECT count(*) FROM messages.alert_delivery WHERE abandoned_at IS NOT NULL") == 1


def test_the_sink_has_since_when_it_fails_until_it_works_again(settle_delivery_sink: Sink, queue: Queue) -> None:
    state = "SELECT failures, failing_since IS NOT NULL AS failing, last_error, delivered_at FROM messages.alert_sink"
    raise_alert(queue)
    for _ in range(2):
        settle_delivery_sink.settle(settle_delivery_sink.next(), "no answer", retry_in=timedelta(0))
    assert queue.row(state) == (2, True, "no answer", None)

    settle_delivery_sink.settle(settle_delivery_sink.next())

    after = queue.row(state)
    assert (after.failures, after.failing) == (0, False)
    assert after.delivered_at is not None


def test_a_settled_notification_is_not_settled_twice(settle_delivery_sink: Sink, queue: Queue) -> None:
    raise_alert(queue)
    got = settle_delivery_sink.next()
    settle_delivery_sink.settle(got)

    assert settle_delivery_sink.settle(got, "late") is False


def test_only_the_current_holder_of_the_sink_can_settle(settle_delivery_sink: Sink, queue: Queue) -> None:
    raise_alert(queue)
    got = settle_delivery_sink.next()
    queue.conn.execute("UPDATE messages.alert_sink SET fence = fence + 1")

    assert settle_delivery_sink.settle(got) is False
    assert queue.value("SELECT count(delivered_at) FROM messages.alert_delivery") == 0


# messages.matches_glob: a pattern in which * matches any characters and nothing else has a meaning.


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        (None, "a", True),
        ("*", None, True),
        ("a", None, False),
        ("a", "a", True),
        ("a", "ab", False),
        ("a*", "ab", True),
        ("*.b", "a.b", True),
        ("a*c", "abbc", True),
        ("a_c", "abc", False),
        ("a%", "abc", False),
        ("a\\*", "a\\b", True),
    ],
)
def test_it_matches_or_not(queue: Queue, pattern: str | None, text: str | None, matches: bool) -> None:
    assert queue.call("matches_glob", pattern, text) is matches


# messages.delete_sink: deletes a sink that no configuration names any more.


def test_the_sink_is_deleted_and_the_alerts_stay(queue: Queue) -> None:
    raise_alert(queue)
    Sink(queue).next()

    assert (queue.call("delete_sink", "ops"), queue.call("delete_sink", "ops")) == (True, False)

    left = "SELECT count(*) FROM messages."
    assert [queue.value(left + table) for table in ("alert_incident", "alert_delivery", "alert")] == [0, 0, 1]


def test_a_sink_that_is_still_configured_starts_as_a_new_one(queue: Queue) -> None:
    raise_alert(queue)
    Sink(queue).next()
    queue.call("delete_sink", "ops")

    assert len(Sink(queue).deliver_all()) == 1
