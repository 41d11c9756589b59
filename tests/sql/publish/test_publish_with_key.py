"""messages.publish_with_key, through messages.publish.

A key of a topic with key_ttl blocks while its message is live, and for a time after a success.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from psycopg import errors

from tests.sql.queue import Background, Queue

EVERY_MODE = pytest.mark.parametrize("mode", ["replace", "ignore", "append"])


@pytest.fixture(autouse=True)
def key_ttl(queue: Queue) -> None:
    queue.policy("t", key_ttl="1 hour", max_attempts=3)


@pytest.mark.parametrize(
    ("mode", "what", "payload"), [("replace", "replaced", 2), ("ignore", "ignored", 1), ("append", "appended", [1, 2])]
)
def test_while_its_message_waits_a_key_behaves_as_in_every_topic(
    queue: Queue, mode: str, what: str, payload: Any
) -> None:
    first = queue.send(1, key="k")

    second = queue.send(2, key="k", on_conflict=mode)

    assert (second.id, second.outcome) == (first.id, what)
    assert queue.message(first.id).payload == payload


@EVERY_MODE
def test_while_its_message_runs_the_key_is_held_and_nothing_is_published(queue: Queue, mode: str) -> None:
    first = queue.send(1, key="k")
    queue.claim()

    second = queue.send(2, key="k", on_conflict=mode)

    assert (second.id, second.outcome) == (first.id, "held")
    assert queue.ids() == [first.id]
    assert queue.message(first.id).payload == 1


@EVERY_MODE
def test_while_its_message_waits_for_a_retry_the_key_is_held(queue: Queue, mode: str) -> None:
    first = queue.send(1, key="k")
    queue.settle("retry", queue.claim(), ["boom"])

    assert tuple(queue.send(2, key="k", on_conflict=mode)) == (first.id, "held")


@EVERY_MODE
def test_after_a_success_the_key_is_held_for_key_ttl_and_then_free(queue: Queue, mode: str) -> None:
    first = queue.send(1, key="k")
    queue.settle("complete", queue.claim())

    queue.later("59 minutes")
    within = queue.send(2, key="k", on_conflict=mode)
    queue.later("2 minutes")
    after = queue.send(3, key="k", on_conflict=mode)

    assert tuple(within) == (first.id, "held")
    assert after.outcome == "inserted"
    assert queue.ids() == [after.id]


def lose_its_lock(queue: Queue) -> None:
    queue.policy("t", max_attempts=1)
    queue.claim(lock_duration="1 s")
    queue.later("1 minute")
    queue.call("expire_locks")


def expire(queue: Queue) -> None:
    queue.later("1 minute")
    queue.call("expire_messages")


OTHER_ENDS: dict[str, Callable[[Queue], Any]] = {
    "failed": lambda queue: queue.settle("fail", queue.claim(), ["boom"]),
    "rejected": lambda queue: queue.settle("reject", queue.claim(), ["boom"]),
    "cancelled": lambda queue: queue.call("cancel", queue.ids()),
    "lock_expired": lose_its_lock,
    "expired": expire,
}


@pytest.mark.parametrize("result", OTHER_ENDS)
def test_any_other_end_frees_the_key_at_once(queue: Queue, result: str) -> None:
    first = queue.send(1, key="k", ttl="10 s")
    OTHER_ENDS[result](queue)

    assert queue.archived(first.id).result == result
    assert queue.send(2, key="k").outcome == "inserted"


def test_a_message_from_before_key_ttl_does_not_free_the_key_of_another(queue: Queue) -> None:
    queue.policy("t", key_ttl=None)
    queue.send(1, key="k")
    before = queue.claim()
    queue.policy("t", key_ttl="1 hour")
    holder = queue.send(2, key="k").id

    queue.settle("fail", before, ["boom"])

    assert queue.value("SELECT message_id FROM messages.held_key") == holder


def test_if_key_ttl_was_removed_in_the_meantime_a_success_frees_the_key_too(queue: Queue) -> None:
    queue.send(1, key="k")
    claimed = queue.claim()
    queue.policy("t", key_ttl=None)

    queue.settle("complete", claimed)

    assert queue.rows("SELECT FROM messages.held_key") == []


def test_with_on_conflict_error_and_an_insert_a_held_key_is_an_error_that_names_the_holder(queue: Queue) -> None:
    first = queue.send(1, key="k")
    claimed = queue.claim()

    with pytest.raises(errors.UniqueViolation, match=f"held by message {first.id} until it has ended"):
        queue.send(2, key="k")
    with pytest.raises(errors.UniqueViolation, match=f"held by message {first.id} until it has ended"):
        queue.publish(key="k")
    queue.settle("complete", claimed)
    with pytest.raises(errors.UniqueViolation, match=rf"held by message {first.id} until \d{{4}}-"):
        queue.publish(key="k")


def test_a_key_that_an_insert_published_is_held_too(queue: Queue) -> None:
    first = queue.publish(key="k")
    queue.claim()

    assert tuple(queue.send(2, key="k", on_conflict="ignore")) == (first, "held")


@pytest.mark.parametrize(
    ("policy", "code"), [({"accept_publishes": False}, "PGR03"), ({"max_payload_bytes": 3}, "PGR04")]
)
@pytest.mark.parametrize("state", ["ignored", "held"])
def test_a_message_that_its_topic_refuses_is_refused_too_while_its_key_is_in_use(
    queue: Queue, state: str, policy: dict[str, Any], code: str
) -> None:
    queue.send(1, key="k")
    if state == "held":
        queue.claim()
    queue.policy("t", **policy)

    with pytest.raises(errors.Error) as caught:
        queue.send("long", key="k", on_conflict="ignore")

    assert caught.value.sqlstate == code


def test_keys_of_topics_without_key_ttl_are_not_held(queue: Queue) -> None:
    queue.send(1, "other", key="k")
    queue.claim("other")

    assert queue.send(2, "other", key="k", on_conflict="ignore").outcome == "inserted"
    assert queue.rows("SELECT FROM messages.held_key") == []


def test_a_publish_that_is_rolled_back_holds_nothing(queue: Queue) -> None:
    with queue.conn.transaction(force_rollback=True):
        queue.send(1, key="k")

    assert queue.rows("SELECT FROM messages.held_key") == []
    assert queue.send(2, key="k").outcome == "inserted"


def test_a_bulk_insert_holds_each_key_and_one_held_key_refuses_it_completely(queue: Queue) -> None:
    statement = (
        "INSERT INTO messages.message (topic, key, payload) SELECT 't', 'k' || n, '1' "
        "FROM generate_series(%s::int, %s::int) AS n"
    )
    queue.conn.execute(statement, [1, 100])
    queue.claim(limit=1000)

    with pytest.raises(errors.UniqueViolation, match='key "k100" of topic t is held'):
        queue.conn.execute(statement, [100, 200])

    assert queue.value("SELECT count(*) FROM messages.held_key") == 100


@EVERY_MODE
def test_a_key_whose_message_another_session_publishes_and_claims_is_waited_for_and_then_held(
    queue: Queue, other: Queue, background: Background, mode: str
) -> None:
    with other.conn.transaction():
        first = other.send(1, key="k")
        other.claim()
        second = background.start_blocked(queue, queue.send, 2, key="k", on_conflict=mode)

    assert tuple(second.result(timeout=60)) == (first.id, "held")
    assert queue.ids() == [first.id]


def test_concurrent_publishers_and_workers_never_have_two_messages_of_a_key_and_never_fail(
    queue: Queue, other: Queue, third: Queue, background: Background, eventually: Callable[..., Any]
) -> None:
    queue.policy("t", key_ttl="1 ms")
    modes = ["replace", "ignore", "append"]

    def publish(by: Queue) -> set[str]:
        return {by.send([n], key=f"k{n % 2}", on_conflict=modes[n % 3]).outcome for n in range(200)}

    def work(by: Queue) -> int:
        most = 0
        twice = (
            "SELECT coalesce(max(n), 0) FROM (SELECT count(*) AS n FROM messages.message "
            "WHERE key IS NOT NULL GROUP BY key) AS k"
        )
        eventually(lambda: by.value(twice) == 1)
        for _ in range(80):
            claimed = by.claim(limit=5)
            most = max(most, by.value(twice))
            by.settle("complete", claimed)
        return most

    publishing = [background.start(publish, queue), background.start(publish, other)]
    most = background.start(work, third).result(60)

    whats = publishing[0].result(60) | publishing[1].result(60)
    assert most == 1
    assert "inserted" in whats
    assert whats <= {"inserted", "replaced", "ignored", "appended", "held"}
