"""The trigger of the archive: messages that end badly warn, leave an alert and ring dead_message."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.sql.queue import Ear, Queue

ALERTS = "SELECT topic, result, count, first_message_id, last_message_id, sample_error, delivered_at FROM messages.alert ORDER BY id"


@pytest.fixture
def ear(listen: Callable[..., Ear]) -> Ear:
    return listen("dead_message")


@pytest.fixture
def said(queue: Queue) -> list[tuple[str | None, ...]]:
    """What the server says to this session, as it comes: severity and text first, then all the rest."""
    said: list[tuple[str | None, ...]] = []
    queue.conn.add_notice_handler(
        lambda d: said.append((d.severity, d.message_primary, d.message_detail, d.message_hint, d.context))
    )
    return said


def test_a_dead_message_rings_with_its_id(queue: Queue, ear: Ear) -> None:
    dead = queue.publish()

    queue.settle("fail", queue.claim(), ["boom"])

    assert ear.heard() == [str(dead)]


def test_dead_messages_of_one_kind_ring_once_with_topic_and_count(queue: Queue, ear: Ear) -> None:
    queue.publish_many(3)

    queue.settle("fail", queue.claim(), ["boom 1", "boom 2", "boom 3"])

    assert ear.heard() == ["t 3"]


def test_one_alert_stands_for_each_topic_result_and_fingerprint_of_a_statement(queue: Queue, ear: Ear) -> None:
    a1, a2, a3 = queue.publish_many(3, "a")
    b1 = queue.publish("b")

    queue.settle(
        "fail", queue.claim("a", "b"), ["disk 1 is full", "disk 2 is full", "no route to host", "disk 3 is full"]
    )

    assert [tuple(alert) for alert in sorted(queue.rows(ALERTS), key=lambda a: a.first_message_id)] == [
        ("a", "failed", 2, a1, a2, "disk 1 is full", None),
        ("a", "failed", 1, a3, a3, "no route to host", None),
        ("b", "failed", 1, b1, b1, "disk 3 is full", None),
    ]
    assert sorted(ear.heard()) == sorted(["a 2", str(a3), str(b1)])


def test_a_warning_in_the_log_names_id_topic_and_result_and_never_the_payload(
    queue: Queue, said: list[tuple[str | None, ...]]
) -> None:
    dead = queue.publish(payload={"iban": "DE02120300000000202051"}, headers={"token": "s3cret"})

    queue.settle("reject", queue.claim(), ["bad iban DE02120300000000202051"])

    (warning,) = said
    assert warning[:2] == ("WARNING", f"dead message {dead} of topic t: rejected")
    assert "DE02" not in str(warning)


def test_every_dead_message_has_its_own_warning(queue: Queue, said: list[tuple[str | None, ...]]) -> None:
    dead = queue.publish_many(3)

    queue.settle("fail", queue.claim(), ["boom"] * 3)

    assert [text for _, text, *_ in said] == [f"dead message {d} of topic t: failed" for d in dead]


def test_every_result_but_success_and_cancelled_is_dead(queue: Queue, ear: Ear) -> None:
    rejected, failed, expired = (queue.publish(t) for t in ("rejected", "failed", "expired"))
    queue.settle("reject", queue.claim("rejected"), ["x"])
    queue.settle("fail", queue.claim("failed"), ["x"])
    queue.claim("expired")
    queue.later("1 hour")
    queue.call("expire_locks")

    assert ear.heard() == [str(rejected), str(failed), str(expired)]
    assert [alert.result for alert in queue.rows(ALERTS)] == ["rejected", "failed", "lock_expired"]


def test_success_and_cancelled_raise_nothing(queue: Queue, ear: Ear, said: list[tuple[str | None, ...]]) -> None:
    queue.publish()
    queue.settle("complete", queue.claim())
    queue.call("cancel", [queue.publish()])

    assert (ear.heard(), queue.rows(ALERTS), said) == ([], [], [])


def test_a_settle_that_is_rolled_back_raises_no_alert_and_rings_nothing(queue: Queue, ear: Ear) -> None:
    queue.publish()
    claimed = queue.claim()

    with queue.conn.transaction(force_rollback=True):
        queue.settle("fail", claimed, ["boom"])

    assert (ear.heard(), queue.rows(ALERTS)) == ([], [])


def test_an_attempt_that_will_be_retried_raises_nothing(queue: Queue, ear: Ear) -> None:
    queue.publish(max_attempts=2)

    queue.settle("retry", queue.claim(), ["boom"])

    assert (ear.heard(), queue.rows(ALERTS)) == ([], [])


def test_an_error_of_8_kilobytes_is_sampled_not_copied(queue: Queue) -> None:
    queue.publish()

    queue.settle("fail", queue.claim(), ["x" * 8000])

    assert len(queue.row(ALERTS).sample_error) == 1000
