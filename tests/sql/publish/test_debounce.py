"""Keys that are debounced: messages.publish with p_debounce and p_max_delay."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import product
from typing import Any

import pytest
from psycopg import errors
from psycopg.types.json import Jsonb

from tests.sql.queue import Background, Queue, Row

# Publishes read the server's clock, so the times here are hours apart, and are compared with each other.
SECOND = timedelta(seconds=1)
CLOCK = "SELECT clock_timestamp()"
SET_BACK = """
    UPDATE messages.message SET created_at = created_at - %(by)s::interval,
      available_at = available_at - %(by)s::interval, debounce_limit = debounce_limit - %(by)s::interval
"""


def age(queue: Queue, by: str) -> None:
    """Make the messages that wait this much older."""
    queue.conn.execute(SET_BACK, {"by": by})


def debounce(queue: Queue, payload: Any = 1, **named: Any) -> Row:
    return queue.send(payload, **{"key": "k", "debounce": "1 hour", **named})


def wait(queue: Queue, message: int) -> timedelta:
    """Return how long a message still waits, in whole minutes."""
    left: timedelta = queue.message(message).available_at - queue.value(CLOCK)
    return timedelta(minutes=round(left / timedelta(minutes=1)))


def test_the_first_publish_waits_for_the_time(queue: Queue) -> None:
    first = debounce(queue)

    assert first.outcome == "inserted"
    assert wait(queue, first.id) == timedelta(hours=1)
    assert queue.claim() == []


def test_a_further_publish_replaces_the_payload_and_starts_the_time_again(queue: Queue) -> None:
    first = debounce(queue, 1)
    age(queue, "40 minutes")
    created_at = queue.message(first.id).created_at

    second = debounce(queue, 2)

    assert tuple(second) == (first.id, "replaced")
    assert (queue.message(first.id).payload, queue.message(first.id).created_at) == (2, created_at)
    assert wait(queue, first.id) == timedelta(hours=1)


def test_it_waits_at_most_for_max_delay_after_the_first_publish(queue: Queue) -> None:
    first = debounce(queue, 1, max_delay="2 hours")
    age(queue, "50 minutes")
    debounce(queue, 2, max_delay="2 hours")
    age(queue, "50 minutes")

    debounce(queue, 3, max_delay="2 hours")

    assert wait(queue, first.id) == timedelta(minutes=20)
    assert queue.message(first.id).payload == 3


def test_after_max_delay_it_is_ready_and_still_takes_the_newest_payload(queue: Queue) -> None:
    first = debounce(queue, 1, max_delay="2 hours")
    age(queue, "3 hours")

    debounce(queue, 2, max_delay="2 hours")

    assert wait(queue, first.id) == -timedelta(hours=1)
    assert [claimed.payload for claimed in queue.claim()] == ["2"]


def test_the_time_is_never_moved_earlier(queue: Queue) -> None:
    first = debounce(queue, 1, debounce="3 hours")

    debounce(queue, 2, debounce="1 second")

    assert wait(queue, first.id) == timedelta(hours=3)


def test_append_gathers_the_payloads(queue: Queue) -> None:
    first = debounce(queue, 1, on_conflict="append")
    age(queue, "40 minutes")

    second = debounce(queue, 2, on_conflict="append")

    assert tuple(second) == (first.id, "appended")
    assert queue.message(first.id).payload == [1, 2]
    assert wait(queue, first.id) == timedelta(hours=1)


def test_a_publish_without_debounce_keeps_the_time_of_one_with_it(queue: Queue) -> None:
    first = debounce(queue, 1)
    age(queue, "40 minutes")

    queue.send(2, key="k", on_conflict="replace")

    assert wait(queue, first.id) == timedelta(minutes=20)


def test_a_message_that_was_published_without_debounce_keeps_its_time(queue: Queue) -> None:
    first = queue.send(1, key="k")

    second = debounce(queue, 2)

    assert tuple(second) == (first.id, "replaced")
    assert [claimed.payload for claimed in queue.claim()] == ["2"]


def test_a_running_message_is_not_touched_and_the_next_waits(queue: Queue) -> None:
    first = debounce(queue, 1)
    age(queue, "2 hours")
    queue.claim_one()
    before = queue.message(first.id)

    second = debounce(queue, 2)

    assert second.outcome == "inserted"
    assert queue.message(first.id) == before
    assert wait(queue, second.id) == timedelta(hours=1)


def test_a_message_that_was_attempted_is_not_touched(queue: Queue) -> None:
    queue.policy("t", max_attempts=3)
    first = debounce(queue, 1)
    age(queue, "2 hours")
    queue.settle("retry", [queue.claim_one()], ["boom"], ["1 hour"])
    before = queue.message(first.id)

    assert debounce(queue, 2).outcome == "inserted"
    assert queue.message(first.id) == before


def test_a_publish_that_waited_for_a_claim_inserts_the_next_message(
    queue: Queue, other: Queue, background: Background
) -> None:
    first = debounce(queue, 1)
    age(queue, "2 hours")
    with other.conn.transaction():
        other.claim_one()
        second = background.start_blocked(queue, debounce, queue, 2)

    assert second.result(timeout=60).outcome == "inserted"
    assert queue.message(first.id).payload == 1


def test_of_two_concurrent_publishes_the_second_moves_the_message_of_the_first(
    queue: Queue, other: Queue, background: Background
) -> None:
    with other.conn.transaction():
        first = debounce(other, 1)
        second = background.start_blocked(queue, debounce, queue, 2)

    assert tuple(second.result(timeout=60)) == (first.id, "replaced")
    assert queue.message(first.id).payload == 2


def test_a_publish_that_is_rolled_back_moves_nothing(queue: Queue) -> None:
    first = debounce(queue, 1)
    age(queue, "40 minutes")
    with queue.conn.transaction(force_rollback=True):
        debounce(queue, 2)

    assert (queue.message(first.id).payload, wait(queue, first.id)) == (1, timedelta(minutes=20))


@pytest.mark.parametrize(
    ("debounced", "expires"), [("1 hour", "6 hours"), ("4 hours", "7 hours"), ("1 minute", "6 hours")]
)
def test_a_ttl_counts_from_the_time_at_which_the_message_is_available(
    queue: Queue, debounced: str, expires: str
) -> None:
    """The times are those of the message before and with max_delay after the second publish."""
    first = debounce(queue, 1, ttl="5 hours", max_delay="2 hours")

    debounce(queue, 2, ttl="5 hours", debounce=debounced, max_delay="10 hours")

    after = queue.message(first.id)
    assert after.expires_at - after.available_at == timedelta(hours=5)
    assert abs(after.expires_at - queue.value("SELECT clock_timestamp() + %s::interval", [expires])) < 60 * SECOND


def test_a_message_without_a_ttl_gets_none(queue: Queue) -> None:
    first = debounce(queue, 1)

    debounce(queue, 2)

    assert queue.message(first.id).expires_at is None


def test_a_ttl_counts_from_now_if_the_message_is_available_already(queue: Queue) -> None:
    first = debounce(queue, 1, ttl="30 minutes", max_delay="2 hours")
    age(queue, "5 hours")

    debounce(queue, 2, ttl="30 minutes", max_delay="2 hours")

    left = queue.message(first.id).expires_at - queue.value(CLOCK)
    assert abs(left - timedelta(minutes=30)) < 60 * SECOND
    assert [claimed.payload for claimed in queue.claim()] == ["2"]


def test_a_message_whose_ttl_is_over_waits_again(queue: Queue) -> None:
    first = debounce(queue, 1, ttl="1 minute")
    age(queue, "2 hours")

    second = debounce(queue, 2, ttl="1 minute")

    assert (tuple(second), wait(queue, first.id)) == ((first.id, "replaced"), timedelta(hours=1))
    assert queue.message(first.id).expires_at - queue.message(first.id).available_at == timedelta(minutes=1)


def test_a_message_that_waits_for_others_goes_on_waiting(queue: Queue) -> None:
    before = queue.publish("other")
    first = queue.row("SELECT * FROM messages.publish('t', '1', p_key => 'k', p_after => %s)", [[before]])

    second = debounce(queue, 2, ttl="1 hour")

    stored = queue.message(first.id)
    assert (tuple(second), stored.payload, stored.expires_at) == ((first.id, "replaced"), 2, None)
    assert stored.available_at.year == 9000
    queue.settle("complete", queue.claim("other"))
    assert [claimed.payload for claimed in queue.claim()] == ["2"]


def test_the_ttl_of_the_topic_counts_from_then_too(queue: Queue) -> None:
    queue.policy("t", ttl="5 hours")
    first = debounce(queue, 1, max_delay="2 hours")
    age(queue, "90 minutes")

    debounce(queue, 2, max_delay="2 hours")

    after = queue.message(first.id)
    assert after.expires_at - after.available_at == timedelta(hours=5)


def test_the_copies_for_subscribers_are_debounced(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.subscription (topic, subscriber) VALUES ('t', 's')")
    debounce(queue, 1)
    (copy,) = queue.ids()
    age(queue, "40 minutes")

    debounce(queue, 2)

    assert queue.ids() == [copy]
    assert (queue.message(copy).payload, wait(queue, copy)) == (2, timedelta(hours=1))


def test_it_counts_once_in_the_depth_of_its_topic(queue: Queue) -> None:
    queue.policy("t", max_depth=1)

    outcomes = [debounce(queue, n).outcome for n in range(3)]

    assert outcomes == ["inserted", "replaced", "replaced"]
    assert queue.depth() == 1


@pytest.mark.parametrize(
    ("policy", "code"), [({"accept_publishes": False}, "PGR03"), ({"max_payload_bytes": 3}, "PGR04")]
)
def test_a_further_publish_that_the_topic_refuses_changes_nothing(
    queue: Queue, policy: dict[str, Any], code: str
) -> None:
    first = debounce(queue, 1)
    before = queue.message(first.id)
    queue.policy("t", **policy)

    with pytest.raises(errors.Error) as caught:
        debounce(queue, "long")

    assert (caught.value.sqlstate, queue.message(first.id)) == (code, before)


@pytest.mark.parametrize("policy", [{"max_depth": 1}, {"publish_rate": 0.001, "burst": 1}])
def test_a_further_publish_is_not_counted(queue: Queue, policy: dict[str, Any]) -> None:
    queue.policy("t", **policy)
    first = debounce(queue, 1)

    assert tuple(debounce(queue, 2)) == (first.id, "replaced")
    with pytest.raises(errors.Error, match="topic t"):
        debounce(queue, 3, key="other")


def test_a_message_that_is_cancelled_is_not_published_again(queue: Queue) -> None:
    first = debounce(queue, 1)
    queue.call("cancel", [first.id])

    second = debounce(queue, 2)

    assert (second.outcome, queue.archived(first.id).payload) == ("inserted", 1)
    assert queue.ids() == [second.id]


def test_a_claim_finds_the_message_after_low_water_marks_were_raised(queue: Queue) -> None:
    first = debounce(queue, 1, debounce="0")
    debounce(queue, 2)
    queue.publish_many(200)
    for _ in range(3):
        queue.settle("complete", queue.claim())
    debounce(queue, 3)

    queue.later("2 hours")

    assert [(claimed.id, claimed.payload) for claimed in queue.claim()] == [(first.id, "3")]


def test_a_redriven_message_is_not_debounced(queue: Queue) -> None:
    first = debounce(queue, 1)
    age(queue, "2 hours")
    queue.settle("reject", [queue.claim_one()], ["bad"])

    queue.rows("SELECT * FROM messages.redrive(%s)", [[first.id]])

    (again,) = queue.ids()
    assert queue.message(again).debounce_limit is None


MISUSE: dict[str, tuple[dict[str, Any], str]] = {
    "without a key": ({"key": None}, "there is no key"),
    "with a delay": ({"delay": "1 s"}, "the delay is debounce"),
    "with a time": ({"available_at": datetime(2050, 1, 1)}, "the delay is debounce"),  # noqa: DTZ001
    "with ignore": ({"on_conflict": "ignore"}, "use replace or append"),
    "with throttle": ({"throttle": "1 s"}, "use one of them"),
    "with a max_delay that is shorter": ({"max_delay": "1 minute"}, "use an interval from debounce"),
    "with a time below zero": ({"debounce": "-1 s"}, "use an interval from 0 to 36500 days"),
    "with a time that is too long": ({"debounce": "36501 days"}, "use an interval from 0 to 36500 days"),
    "with a max_delay that is too long": ({"max_delay": "36501 days"}, "to 36500 days"),
    "max_delay alone": ({"debounce": None, "max_delay": "1 minute"}, "give both"),
    "throttle with max_delay": ({"debounce": None, "throttle": "1 s", "max_delay": "1 minute"}, "it is for debounce"),
    "throttle with replace": ({"debounce": None, "throttle": "1 s", "on_conflict": "replace"}, "use ignore"),
    "throttle below zero": ({"debounce": None, "throttle": "-1 s"}, "use an interval from 0 to 36500 days"),
}


def test_what_cannot_be_combined_is_refused(queue: Queue) -> None:
    for named, problem in MISUSE.values():
        with pytest.raises(errors.InvalidParameterValue, match=problem):
            debounce(queue, 1, **named)


def test_a_time_without_end_is_refused(queue: Queue) -> None:
    """Before version 17, PostgreSQL has no such intervals."""
    for option, end in product(("debounce", "max_delay", "throttle"), ("infinity", "-infinity")):
        given = {"debounce": None if option == "throttle" else "1 s"} | {option: end}
        with pytest.raises(errors.DataError):
            debounce(queue, 1, **given)


def test_times_that_are_null_are_not_given(queue: Queue) -> None:
    sent = debounce(queue, 1, debounce=None, max_delay=None, throttle=None)

    assert queue.message(sent.id).debounce_limit is None
    assert [claimed.id for claimed in queue.claim()] == [sent.id]


def test_after_cannot_be_combined_with_debounce(queue: Queue) -> None:
    first = queue.publish()

    with pytest.raises(errors.InvalidParameterValue, match="no time that could be moved"):
        queue.row(
            "SELECT * FROM messages.publish('t', %s, p_key => 'k', p_debounce => '1 s', p_after => %s)",
            [Jsonb(1), [first]],
        )
