"""Messages that end badly, with real daemons: the stored error, the dead letter and its handler, and the redrive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.daemon.process import Daemon, Journal
from tests.server.deadline import eventually
from tests.sql.queue import Listener, Queue

Start = Callable[..., Daemon]


def ended(queue: Queue, message_id: int) -> Any:
    """Wait until a message has ended and return its archive row."""
    return eventually(lambda: queue.archived(message_id))


@pytest.mark.parametrize(
    "handler", ["pay", "pay_in_thread", {"handler": "letters:pay_in_process", "isolation": "process"}], ids=str
)
def test_the_traceback_is_kept_and_errors_of_one_kind_have_one_fingerprint(
    start: Start, queue: Queue, handler: Any
) -> None:
    start({"pay": f"letters:{handler}" if isinstance(handler, str) else handler})

    first, second = (ended(queue, queue.publish("pay", payload={"id": n})) for n in (7, 12))

    assert first.result == "failed"
    assert first.error.startswith("Traceback (most recent call last):\n")
    assert "letters.py" in first.error
    assert first.error.endswith("ConnectionError: bank 7 did not answer within 49 ms\n")
    assert first.error_fingerprint == second.error_fingerprint
    (group,) = queue.rows("SELECT * FROM messages.dead_groups()")
    assert (group.topic, group.result, group.count, group.sample_id) == ("pay", "failed", 2, second.id)


def test_a_handler_of_the_dlq_processes_the_copy_at_once(start: Start, queue: Queue, journal: Journal) -> None:
    queue.policy("pay", dead_letter=True)
    start({"pay": "letters:pay", "pay.dlq": "letters:tend"})

    died = queue.publish("pay", payload={"id": 7}, headers={"trace": "x"}, key="k")

    tended = journal.entry("tended")
    assert (tended["topic"], tended["payload"], tended["headers"], tended["key"]) == (
        "pay.dlq",
        {"id": 7},
        {"trace": "x"},
        None,
    )
    letter = ended(queue, tended["id"])
    assert (letter.result, letter.origin_id, letter.original_topic) == ("success", died, "pay")
    assert queue.archived(died).result == "failed"
    assert queue.ids() == []


def test_a_dead_letter_that_dies_raises_its_alert_and_makes_no_further_dead_letter(
    start: Start, queue: Queue, journal: Journal, listen: Callable[..., Listener]
) -> None:
    queue.policy("*", dead_letter=True, max_attempts=3, backoff={"kind": "none"})
    listener = listen("dead_message")
    start({"pay": "letters:pay", "pay.dlq": "letters:tend"})

    died = queue.publish("pay", payload={"id": 7, "hopeless": True})

    letter = ended(queue, journal.entry("tended")["id"])
    assert (letter.result, letter.attempts) == ("failed", 1)
    assert queue.archived(died).attempts == 3
    assert (len(journal.entries("tended")), queue.ids()) == (1, [])
    assert listener.received() == [str(died), str(letter.id)]


def test_a_loop_of_redrives_and_deaths_is_counted_and_ends_at_the_limit(start: Start, queue: Queue) -> None:
    queue.policy("pay", max_redrives=3)
    start({"pay": "letters:pay"})
    died = queue.publish("pay", payload={"id": 7})
    outcomes = []

    for _ in range(4):
        ended(queue, died)
        (row,) = queue.rows("SELECT * FROM messages.redrive(%s)", [[died]])
        outcomes.append(row.outcome)
        died = row.message_id or died

    assert outcomes == ["redriven"] * 3 + ["too_often"]
    assert [row.redrives for row in queue.rows("SELECT * FROM messages.lineage(%s)", [died])] == [0, 1, 2, 3]


def test_a_redrive_at_a_rate_reaches_the_handler_at_that_rate(start: Start, queue: Queue, journal: Journal) -> None:
    daemon = start({"pay": "letters:pay"})
    died = queue.publish_many(20, "pay", payload={"id": 7})
    for each in died:
        ended(queue, each)
    daemon.open_gate("fixed")
    again = [row.message_id for row in queue.rows("SELECT * FROM messages.redrive_where('pay', p_rate => 10)")]

    eventually(lambda: queue.ids() == [])
    assert sorted(entry["id"] for entry in journal.entries("start") if entry["id"] not in died) == sorted(again)
    (turns,) = queue.rows(
        """
        SELECT count(*) AS count, (max(available_at) - min(available_at))::text AS takes,
          min(locked_at - available_at) >= '0' AS none_is_early, max(locked_at - available_at) < '8 s' AS none_is_late
        FROM messages.message_archive WHERE id = ANY (%s)
        """,
        [again],
    )
    assert (turns.count, turns.takes, turns.none_is_early, turns.none_is_late) == (20, "00:00:01.9", True, True)


def test_an_ad_hoc_worker_over_dead_messages_needs_only_sql(start: Start, queue: Queue) -> None:
    queue.policy("pay", dead_letter=True)
    start({"pay": "letters:pay"})
    died = queue.publish("pay", payload={"id": 7})
    ended(queue, died)

    (claimed,) = queue.claim("pay.dlq", worker="a person")
    lost = queue.settle("complete", [claimed])

    assert (claimed.payload, lost) == ('{"id": 7}', [])
    assert queue.archived(claimed.id).handled_by == "a person"
