"""Circuit breakers: when they open, half-open and close, and what they announce."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from psycopg import errors
from psycopg.types.json import Jsonb

from tests.sql.queue import Listener, Queue

# messages.announce_breaker: the notifications and alerts of a breaker.

BREAKER = {"min_attempts": 4, "pause": "30s", "probes": 2}


def test_opening_and_closing_send_a_notification_and_write_an_alert(
    queue: Queue, listen: Callable[..., Listener]
) -> None:
    queue.policy(breaker=BREAKER)
    listener = listen("topic_changed")
    queue.publish_many(20)

    queue.settle("fail", queue.claim(limit=4), ["boom"] * 4)
    queue.later("31 s")
    queue.settle("complete", queue.claim())

    assert listener.received() == ["t", "t"]
    alerts = queue.rows("SELECT topic, result, sample_error FROM messages.alert WHERE kind = 'breaker' ORDER BY id")
    assert [(a.topic, a.result) for a in alerts] == [("t", "open"), ("t", "closed")]
    assert alerts[0].sample_error.startswith("4 of 4 attempts failed")


def test_a_failed_probe_is_not_announced_as_a_second_opening(queue: Queue, listen: Callable[..., Listener]) -> None:
    queue.policy(breaker=BREAKER)
    listener = listen("topic_changed")
    queue.publish_many(20)
    queue.settle("fail", queue.claim(limit=4), ["boom"] * 4)

    for _ in range(3):
        queue.later("31 s")
        queue.settle("fail", queue.claim(), ["boom"] * 2)
    queue.later("31 s")
    queue.settle("complete", queue.claim())

    alerts = queue.rows("SELECT result, fix FROM messages.alert WHERE kind = 'breaker' ORDER BY id")
    assert [a.result for a in alerts] == ["open", "closed"]
    assert "pgrouse topic show t" in alerts[0].fix
    assert len(listener.received()) == 5, "a listener receives every change of the topic"


def test_an_open_breaker_that_is_removed_is_announced_as_closed(queue: Queue) -> None:
    queue.policy(breaker=BREAKER)
    queue.publish_many(20)
    queue.settle("fail", queue.claim(limit=4), ["boom"] * 4)
    queue.policy(breaker=None)

    queue.call("update_breakers")
    queue.call("update_breakers")

    alerts = queue.rows("SELECT result, sample_error FROM messages.alert WHERE kind = 'breaker' ORDER BY id")
    assert [a.result for a in alerts] == ["open", "closed"]
    assert alerts[1].sample_error == "the topic has no breaker any more"


def test_its_reason_formats_the_time_like_all_other_texts(queue: Queue) -> None:
    queue.policy(breaker=BREAKER)
    queue.publish_many(4)
    queue.settle("fail", queue.claim(limit=4), ["boom"] * 4)

    why = queue.value("SELECT sample_error FROM messages.alert WHERE kind = 'breaker'")

    assert re.fullmatch(r"4 of 4 attempts failed since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", why)


# breaker_advice: breaker_advice: the alert and the condition of an open breaker have the same advice.


def test_an_alert_and_the_condition_have_the_same_advice(queue: Queue) -> None:
    queue.policy(breaker={"min_attempts": 2, "pause": "10m"})
    queue.publish_many(4)
    queue.settle("fail", queue.claim(limit=2), ["boom"] * 2)

    alert = queue.value("SELECT fix FROM messages.alert WHERE kind = 'breaker'")
    condition = queue.value("SELECT fix FROM messages.conditions() WHERE kind = 'breaker'")

    assert alert == condition == queue.call("breaker_advice", "t")
    assert "`pgrouse topic show t`" in alert


# messages.check_breaker: which breaker policies are valid.


def check(queue: Queue, policy: Any) -> Any:
    return queue.row("SELECT * FROM messages.check_breaker(%s)", [Jsonb(policy)])


def test_every_documented_breaker_is_valid(queue: Queue) -> None:
    full = {"failure_rate": 0.01, "min_attempts": 1, "window": "1 day", "pause": "1s", "probes": 1000}
    for policy in ({}, {"failure_rate": 1}, full):
        assert check(queue, policy) == (None, None)
    assert queue.row("SELECT * FROM messages.check_breaker(NULL)") == (None, None)


INVALID: list[tuple[Any, str, str]] = [
    ([1], "[1] is not an object", 'use {"failure_rate": 0.5'),
    ({"rate": 1}, "rate is 1", "use failure_rate, min_attempts, window, pause, probes"),
    ({"failure_rate": 0}, "failure_rate is 0", "use a number above 0, up to 1"),
    ({"failure_rate": 1.5}, "failure_rate is 1.5", "use a number above 0, up to 1"),
    ({"failure_rate": "half"}, 'failure_rate is "half"', "use a number above 0, up to 1"),
    ({"failure_rate": None}, "failure_rate is null", "use a number above 0, up to 1"),
    ({"failure_rate": "NaN"}, 'failure_rate is "NaN"', "use a number above 0, up to 1"),
    ({"min_attempts": 0}, "min_attempts is 0", "use a whole number from 1 to 1000000"),
    ({"min_attempts": 99999999999}, "min_attempts is 99999999999", "use a whole number from 1 to 1000000"),
    ({"probes": 2.5}, "probes is 2.5", "use a whole number from 1 to 1000"),
    ({"window": "0s"}, 'window is "0s"', "use a time from 1 s to 1 day"),
    ({"window": "soon"}, 'window is "soon"', "use a time from 1 s to 1 day"),
    ({"pause": "2 days"}, 'pause is "2 days"', "use a time from 1 s to 1 day"),
]


def test_an_invalid_breaker_is_reported_with_the_fix(queue: Queue) -> None:
    for policy, problem, fix in INVALID:
        found = check(queue, policy)

        assert found.problem == problem
        assert fix in found.hint


def test_an_invalid_breaker_is_refused_when_it_is_written(queue: Queue) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="breaker of topic t: pause is") as caught:
        queue.policy(breaker={"pause": "-1s"})

    assert "use a time from 1 s to 1 day" in (caught.value.diag.message_hint or "")


# messages.count_breaker_attempts: which ended attempts count for a breaker.


def breaker(queue: Queue) -> Any:
    return queue.row("SELECT * FROM messages.breaker WHERE topic = 't'")


def test_retried_attempts_count_as_failed(queue: Queue) -> None:
    queue.policy(breaker=BREAKER, max_attempts=3)
    queue.publish_many(4)

    queue.settle("retry", queue.claim(), ["boom"] * 4)

    assert breaker(queue).position == "open"


def test_expired_locks_count_as_failed(queue: Queue) -> None:
    queue.policy(breaker=BREAKER)
    queue.publish_many(4)
    queue.claim(lock_duration="0 s")

    queue.call("expire_locks")

    assert breaker(queue).position == "open"


@pytest.mark.parametrize("settle", ["complete", "reject"])
def test_successful_and_rejected_messages_do_not_open_it(queue: Queue, settle: str) -> None:
    queue.policy(breaker=BREAKER)
    queue.publish_many(10)
    claimed = queue.claim()

    queue.settle(settle, claimed, *([["bad"] * 10] if settle == "reject" else []))

    assert breaker(queue) is None or breaker(queue).position == "closed"


def test_the_breaker_of_another_topic_does_not_count_it(queue: Queue) -> None:
    queue.policy("u", breaker=BREAKER)
    queue.publish_many(4)

    queue.settle("fail", queue.claim(), ["boom"] * 4)

    assert queue.rows("SELECT * FROM messages.breaker UNION ALL SELECT b.* FROM messages.breaker AS b") == []
    assert queue.rows("SELECT * FROM messages.breaker_count") == []


def test_a_default_breaker_is_a_separate_one_for_each_topic(queue: Queue) -> None:
    queue.policy("*", breaker=BREAKER)
    for topic in ("a", "b"):
        queue.publish_many(4, topic)

    queue.settle("fail", queue.claim("a"), ["boom"] * 4)

    assert queue.claim("a", "b", limit=10)[0].topic == "b"


@pytest.mark.parametrize("end", ["skip", "fan out", "over"])
def test_messages_that_end_without_being_run_are_no_attempts(queue: Queue, end: str) -> None:
    queue.policy(breaker=BREAKER)
    if end == "fan out":
        queue.conn.execute("INSERT INTO messages.subscription (topic, subscriber) VALUES ('t', 'u')")
    published = queue.publish_many(10)
    match end:
        case "skip":
            queue.call("skip", published)
        case "over":
            queue.conn.execute("UPDATE messages.message SET attempts = 1, max_attempts = 1")
            queue.claim()

    assert queue.value("SELECT count(*) FROM messages.message_archive") == 10
    assert queue.rows("SELECT FROM messages.breaker") == []
    assert queue.rows("SELECT FROM messages.breaker_count") == []


# messages.next_breaker_state: every transition of a breaker.

POLICY = {"failure_rate": 0.5, "min_attempts": 4, "window": "1m", "pause": "30s"}
AFTER = """
    SELECT (r.b).position, (r.b).succeeded, (r.b).failed, (r.b).reason,
           extract(epoch FROM (r.b).probe_at - '2026-01-01 12:00+00')::int AS probe_in_s,
           (r.b).changed_at = '2026-01-01 12:00+00' AS changed
    FROM (SELECT messages.next_breaker_state(
      ROW('t', %(position)s, timestamptz '2026-01-01 12:00+00' - %(window_began)s::interval, %(succeeded)s, %(failed)s,
        '2026-01-01',
          timestamptz '2026-01-01 12:00+00' + %(probe_in)s::interval, NULL)::messages.breaker,
      %(policy)s, %(more_succeeded)s, %(more_failed)s, '2026-01-01 12:00+00') AS b) AS r
"""


def after(queue: Queue, more_succeeded: int, more_failed: int, *, policy: dict[str, Any] = POLICY, **was: Any) -> Any:
    given = {"position": "closed", "window_began": "10 s", "succeeded": 0, "failed": 0, "probe_in": None} | was
    return queue.row(
        AFTER, given | {"policy": Jsonb(policy), "more_succeeded": more_succeeded, "more_failed": more_failed}
    )


def test_it_stays_closed_while_too_few_attempts_ended_or_too_few_failed(queue: Queue) -> None:
    for counts in ((0, 3), (3, 0), (100, 0), (3, 2)):
        assert after(queue, *counts)[:3] == ("closed", *counts)


def test_it_opens_once_enough_attempts_ended_and_enough_of_them_failed(queue: Queue) -> None:
    for succeeded, failed in ((0, 4), (2, 2), (1, 1000)):
        opened = after(queue, succeeded, failed)

        assert (opened.position, opened.probe_in_s, opened.changed) == ("open", 30, True)
        assert opened.reason.startswith(f"{failed} of {succeeded + failed} attempts failed since ")


def test_it_counts_over_several_calls(queue: Queue) -> None:
    assert after(queue, 0, 1, succeeded=2, failed=1).position == "open"


def test_attempts_before_the_window_do_not_count(queue: Queue) -> None:
    assert after(queue, 0, 1, window_began="1 minute", succeeded=2, failed=1)[:3] == ("closed", 0, 1)


def test_while_it_is_open_the_ends_of_earlier_attempts_are_ignored(queue: Queue) -> None:
    for counts in ((5, 0), (0, 5), (3, 3)):
        still = after(queue, *counts, position="open", probe_in="10 s")

        assert (still.position, still.probe_in_s, still.changed) == ("open", 10, False)


def test_a_successful_probe_closes_it_and_the_counters_start_again(queue: Queue) -> None:
    closed = after(queue, 1, 0, position="open", probe_in="-1 s", succeeded=2, failed=9)

    assert (closed[:3], closed.probe_in_s, closed.changed) == (("closed", 0, 0), None, True)


def test_a_failed_probe_keeps_it_open_for_another_pause_and_not_younger(queue: Queue) -> None:
    for succeeded in (0, 5):
        still = after(queue, succeeded, 1, position="open", probe_in="-1 s")

        assert (still.position, still.probe_in_s, still.changed) == ("open", 30, False)


def test_without_a_probe_it_stays_half_open(queue: Queue) -> None:
    assert after(queue, 0, 0, position="open", probe_in="-1 s").changed is False


def test_missing_settings_of_a_policy_have_defaults(queue: Queue) -> None:
    assert after(queue, 10, 9, policy={}).position == "closed"
    assert after(queue, 10, 10, policy={}).probe_in_s == 30


# messages.update_breaker: a breaker during operation.


@pytest.fixture
def broken(queue: Queue) -> Queue:
    """Return a queue whose topic t has a breaker that has just opened."""
    queue.policy(breaker=BREAKER)
    queue.publish_many(20)
    claimed = queue.claim(limit=4)
    queue.settle("fail", claimed, ["boom"] * 4)
    return queue


def test_after_the_pause_a_few_messages_are_claimed_and_one_success_closes_it(broken: Queue) -> None:
    broken.later("31 s")

    probes = broken.claim()
    assert len(probes) == 2
    assert broken.claim() == []

    broken.settle("complete", probes)
    assert breaker(broken).position == "closed"
    assert len(broken.claim()) == 14


def test_settles_that_create_breakers_in_opposite_order_do_not_wait_for_each_other(queue: Queue, other: Queue) -> None:
    for topic in "ab":
        queue.policy(topic, breaker=BREAKER)
        queue.publish_many(2, topic)
    first, second, third, fourth = sorted(queue.claim("a", "b"), key=lambda row: row.topic)

    with queue.conn.transaction(), other.conn.transaction():
        other.conn.execute("SET LOCAL lock_timeout = '10s'")
        queue.settle("complete", [first])
        other.settle("complete", [third])
        other.settle("complete", [second])
        queue.settle("complete", [fourth])
    queue.call("update_breakers")

    assert queue.rows("SELECT topic, succeeded FROM messages.breaker ORDER BY 1") == [("a", 2), ("b", 2)]


# messages.update_breakers: what the tick does for breakers.


def test_a_settle_that_cannot_lock_the_breaker_waits_for_no_session_and_the_next_one_counts(
    queue: Queue, other: Queue
) -> None:
    queue.policy(breaker=BREAKER)
    queue.publish_many(9)
    queue.settle("complete", queue.claim(limit=1))
    claimed = queue.claim(limit=4)

    with other.conn.transaction():
        other.rows("SELECT * FROM messages.breaker FOR UPDATE")
        queue.settle("fail", claimed, ["boom"] * 4)
        assert breaker(queue).position == "closed"
    queue.call("update_breakers")

    assert breaker(queue).position == "open"


def test_a_breaker_without_a_policy_is_deleted(queue: Queue) -> None:
    queue.policy(breaker=BREAKER)
    queue.publish_many(20)
    queue.settle("fail", queue.claim(limit=4), ["boom"] * 4)
    queue.policy(breaker=None)

    queue.call("update_breakers")

    assert breaker(queue) is None
    assert len(queue.claim()) == 16


def test_a_breaker_without_a_policy_that_a_settle_updates_is_left_to_the_next_tick(queue: Queue, other: Queue) -> None:
    queue.policy(breaker=BREAKER)
    queue.publish_many(2)
    claimed = queue.claim()
    queue.settle("complete", claimed[:1])

    with queue.conn.transaction():
        queue.settle("complete", claimed[1:])
        other.conn.execute("SET lock_timeout = '10s'")
        other.policy(breaker=None)
        other.call("update_breakers")
        assert breaker(other) is not None
    other.call("update_breakers")

    assert breaker(other) is None
