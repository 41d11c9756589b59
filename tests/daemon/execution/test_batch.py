"""Batch handlers: messages that were claimed together run together, and each has its own outcome."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.daemon.process import Daemon, Journal, end_locks
from tests.server.alive import lives
from tests.server.deadline import eventually
from tests.sql.queue import Queue

Start = Callable[..., Daemon]


def batch(handler: str, size: int = 100, wait: str = "200ms", **more: Any) -> dict[str, Any]:
    """A topic with batches. They wait a little, so that consecutive publishes of a test are one batch."""
    isolation = {"isolation": "process"} if handler.endswith(("_process", "_child")) else {}
    return {"handler": f"batches:{handler}", "batch_size": size, "batch_timeout": wait, **isolation, **more}


def publish(queue: Queue, *payloads: Any) -> list[int]:
    """Publish these in one transaction, so that one claim finds them."""
    with queue.conn.transaction():
        return [queue.publish("job", payload=Jsonb(each)) for each in payloads]


def results(queue: Queue, ids: list[int]) -> list[str]:
    """Wait until all of them have ended and return their results."""
    return [eventually(lambda each=each: queue.archived(each), within_s=60).result for each in ids]


@pytest.fixture
def effects(queue: Queue) -> Callable[[], list[int]]:
    """The ids in the table `effect`, with repetitions."""
    queue.conn.execute("CREATE TABLE effect (message_id bigint)")
    return lambda: [row.message_id for row in queue.rows("SELECT message_id FROM effect ORDER BY 1")]


class TestOutcomes:
    @pytest.mark.long
    @pytest.mark.parametrize("handler", ["settle_singly", "settle_singly_in_thread", "settle_singly_in_process"])
    def test_each_message_ends_with_the_outcome_that_was_set_for_it(
        self, start: Start, queue: Queue, journal: Journal, handler: str
    ) -> None:
        queue.policy("job", max_attempts=3)
        start({"job": batch(handler)})

        ids = publish(queue, "complete", "reject", "fail", "nothing", "retry", "defer")
        assert results(queue, ids[:4]) == ["success", "rejected", "failed", "success"]

        retried, deferred = eventually(
            lambda: len(back := [m for m in map(queue.message, ids[4:]) if m.claim_id is None]) == 2 and back
        )
        assert (retried.attempts, retried.state) == (1, {"page": 7})
        assert (deferred.attempts, deferred.state) == (0, {"page": 8})
        assert queue.archived(ids[0]).output == {"kept": ids[0]}
        assert queue.archived(ids[1]).error == "not a word of it is true"
        assert [sorted(each["ids"]) for each in journal.entries("start")] == [ids]

    def test_a_returned_list_has_an_outcome_for_each_message(self, start: Start, queue: Queue) -> None:
        start({"job": batch("return_outcomes")})

        ids = publish(queue, "a", "reject", "fail", "raise", "b")

        assert results(queue, ids) == ["success", "rejected", "failed", "failed", "success"]
        assert queue.archived(ids[0]).output == {"kept": "a"}
        assert queue.archived(ids[3]).error.rstrip() == "KeyError: 'x'"

    def test_an_exception_in_the_middle_applies_to_the_messages_without_an_outcome(
        self, start: Start, queue: Queue, journal: Journal
    ) -> None:
        queue.policy("job", max_attempts=2, backoff={"kind": "none"})
        daemon = start({"job": batch("stumble")})

        ids = publish(queue, "fine", "fine", "raise", "never", "never")

        assert results(queue, ids) == ["success", "success", "failed", "failed", "failed"]
        assert [queue.archived(each).output for each in ids[:2]] == [{"worked": each} for each in ids[:2]]
        failed = queue.archived(ids[4])
        assert failed.attempts == 2
        assert failed.error.startswith("in a batch of 3: Traceback")
        assert failed.error.rstrip().endswith("ZeroDivisionError: division by zero")
        assert daemon.events("attempt.failed")[0]["messages"] == 3
        assert sorted(journal.entries("start")[0]["ids"]) == ids
        assert sorted(journal.entries("start")[1]["ids"]) == ids[2:]
        assert daemon.alive

    def test_a_payload_that_does_not_fit_is_rejected_alone(self, start: Start, queue: Queue, journal: Journal) -> None:
        start({"job": batch("take_orders")})

        ids = publish(queue, {"id": 1}, {"id": "secret"}, {"id": 3})

        assert results(queue, ids) == ["success", "rejected", "success"]
        assert [queue.archived(each).output for each in ids] == [10, None, 30]
        assert queue.archived(ids[1]).error.startswith("payload: id: Input should be a valid integer")
        assert journal.entries("start")[0]["orders"] == [1, 3]

    def test_a_payload_that_does_not_match_the_schema_is_rejected_alone(
        self, start: Start, queue: Queue, journal: Journal
    ) -> None:
        queue.policy("job", payload_schema=Jsonb({"type": "integer"}))
        start({"job": batch("count")})

        ids = publish(queue, 1, "two", 3)

        assert results(queue, ids) == ["success", "rejected", "success"]
        assert [each["size"] for each in journal.entries("start")] == [2]


class TestAckFirst:
    @pytest.mark.parametrize("handler", ["stumble", "die_in_process"])
    def test_all_messages_succeed_under_ack_first_before_the_handler_runs(
        self, start: Start, queue: Queue, journal: Journal, handler: str
    ) -> None:
        queue.policy("job", max_attempts=3)
        daemon = start({"job": batch(handler, ack_policy="ack_first")})

        ids = publish(queue, 1, "raise", "die")

        assert results(queue, ids) == ["success"] * 3
        event = daemon.event("message.ended_after_completion", messages=3)
        assert "division by zero" in event["reason"] or "died with exit code -9" in event["reason"]
        assert {queue.archived(each).attempts for each in ids} == {1}
        assert len(journal.entries("start")) == 1

    def test_a_message_lost_before_the_run_is_not_processed(self, start: Start, queue: Queue, journal: Journal) -> None:
        daemon = start({"job": batch("count", 2, wait="1m", ack_policy="ack_first")})
        ids = publish(queue, 1)
        eventually(lambda: queue.message(ids[0]).claim_id)

        queue.call("cancel", ids)
        daemon.event("message.cancelled", message_id=ids[0])
        # The batch is full with these.
        ids += publish(queue, 2, 3)

        assert results(queue, ids) == ["cancelled", "success", "success"]
        # They are settled before the handler begins.
        assert journal.entry("start")["size"] == 2
        assert len(journal.entries("start")) == 1
        assert daemon.events("message.cancelled", message_id=ids[0])


class TestGathering:
    def test_a_backlog_comes_in_full_batches(self, start: Start, queue: Queue, journal: Journal) -> None:
        queue.publish_many(1000, "job")

        start({"job": batch("count", 250, wait="0s", concurrency=2)}, concurrency=5)

        eventually(lambda: queue.ids() == [], within_s=60)
        assert [each["size"] for each in journal.entries("start")] == [250] * 4

    def test_a_full_batch_ends_its_wait(self, start: Start, queue: Queue, journal: Journal) -> None:
        start({"job": batch("count", 3, wait="60s")})

        publish(queue, 1, 2, 3)

        assert journal.entry("start")["size"] == 3

    def test_a_batch_and_other_topics_do_not_take_each_others_slots(
        self, start: Start, queue: Queue, journal: Journal
    ) -> None:
        daemon = start({"job": batch("hold", 50, wait="0s"), "other": "holding:hold"}, concurrency=2)
        held = queue.publish_many(2, "other")
        journal.entry("start", held[0])
        journal.entry("start", held[1])

        ids = queue.publish_many(50, "job")

        eventually(lambda: [e for e in journal.entries("start") if "ids" in e])
        more = queue.publish_many(3, "other")
        daemon.open_gate()
        assert set(results(queue, held + more + ids)) == {"success"}

    @pytest.mark.slow
    def test_topics_of_batches_and_of_single_messages_are_all_processed(
        self, start: Start, queue: Queue, journal: Journal
    ) -> None:
        for topic in ("a", "b", "c", "d"):
            queue.publish_many(200, topic)

        start(
            {
                "a": batch("count", 30, wait="0s"),
                "b": batch("count", 70, wait="0s"),
                "c": "work:echo",
                "d": "work:echo_in_thread",
            },
            concurrency=10,
        )

        eventually(lambda: queue.ids() == [], within_s=60)
        assert queue.value("SELECT count(*) FROM messages.message_archive WHERE result = 'success'") == 800


class TestDying:
    def test_a_daemon_killed_during_a_batch_loses_nothing(self, start: Start, queue: Queue, journal: Journal) -> None:
        queue.policy("job", max_attempts=2, lock_expired_delay="0 s")
        first = start({"job": batch("die")})
        ids = publish(queue, *range(6))
        first.exit_code()
        assert {queue.message(each).attempts for each in ids} == {1}, "nothing is settled before the handler ends"

        end_locks(queue.conn, first)
        start({"job": batch("die")})

        assert set(results(queue, ids)) == {"success"}
        assert {queue.archived(each).attempts for each in ids} == {2}
        assert queue.value("SELECT count(*) FROM messages.message_archive") == len(ids)

    def test_a_daemon_killed_while_a_batch_fills_counts_no_run(self, start: Start, queue: Queue) -> None:
        queue.policy("job", max_attempts=2, lock_expired_delay="0 s")
        first = start({"job": batch("count", wait="60s")})
        published = queue.publish("job")
        eventually(lambda: queue.message(published).claim_id)
        assert (queue.message(published).attempts, queue.message(published).runs) == (1, 0)

        first.kill()
        end_locks(queue.conn, first)
        start({"job": batch("count", wait="0s")})

        assert results(queue, [published]) == ["success"]
        assert (queue.archived(published).attempts, queue.archived(published).runs) == (2, 1)

    @pytest.mark.long
    def test_a_child_that_dies_fails_its_batch_and_the_next_batch_succeeds(self, start: Start, queue: Queue) -> None:
        daemon = start({"job": batch("die_in_process")})

        dying = publish(queue, "live", "die", "live")
        assert results(queue, dying) == ["failed"] * 3
        fine = publish(queue, "live", "live")

        assert results(queue, fine) == ["success"] * 2
        assert queue.archived(dying[0]).error == "in a batch of 3: the handler's process died with exit code -9"
        assert daemon.event("child.died", messages=3)


class TestCancelling:
    def test_one_cancelled_message_does_not_stop_its_batch(self, start: Start, queue: Queue, journal: Journal) -> None:
        daemon = start({"job": batch("hold")})
        ids = publish(queue, 1, 2, 3)
        journal.entry("start")

        queue.call("cancel", [ids[1]])
        daemon.event("message.cancelled", message_id=ids[1])
        daemon.open_gate()

        assert results(queue, ids) == ["success", "cancelled", "success"]
        assert journal.entry("lost")["ids"] == [ids[1]]
        assert journal.entries("cancelled") == []

    @pytest.mark.long
    @pytest.mark.parametrize("handler", ["hold", "hold_in_process"])
    def test_a_batch_is_stopped_when_all_its_messages_are_cancelled(
        self, start: Start, queue: Queue, journal: Journal, handler: str
    ) -> None:
        daemon = start({"job": batch(handler)})
        ids = publish(queue, 1, 2, 3)
        child = journal.entry("start")["pid"]

        for each in ids:
            queue.call("cancel", [each])

        assert results(queue, ids) == ["cancelled"] * 3
        if handler == "hold":
            journal.entry("cancelled")
        else:
            eventually(lambda: not lives(child))
        daemon.open_gate()
        assert results(queue, publish(queue, 4)) == ["success"]


class TestTime:
    @pytest.mark.long
    @pytest.mark.parametrize("handler", ["hold", "hold_in_thread", "hold_in_process"])
    def test_a_batch_that_exceeds_its_timeout_ends_as_expired_locks(
        self, start: Start, queue: Queue, journal: Journal, handler: str
    ) -> None:
        queue.policy("job", timeout="0.5 s")
        daemon = start({"job": batch(handler)})

        ids = publish(queue, 1, 2)

        assert results(queue, ids) == ["lock_expired"] * 2
        assert queue.archived(ids[0]).error.startswith("in a batch of 2: lock_expired: the handler ran longer")
        daemon.open_gate()


class TestStopping:
    @pytest.mark.parametrize("handler", ["hold", "hold_in_thread", "hold_in_process"])
    def test_a_stop_lets_the_running_batch_end_and_releases_the_unstarted_messages(
        self, start: Start, queue: Queue, journal: Journal, handler: str
    ) -> None:
        daemon = start({"job": batch(handler, 2, wait="0s"), "slow": batch("count", wait="60s")})
        running = publish(queue, 1, 2)
        journal.entry("start")
        waiting = queue.publish("slow")
        eventually(lambda: queue.message(waiting).claim_id)

        daemon.send(signal.SIGTERM)

        eventually(lambda: queue.message(waiting).claim_id is None)
        assert queue.message(waiting).attempts == 0
        assert daemon.alive, "it waits for the batch that runs"
        daemon.open_gate()
        assert daemon.exit_code() == 0
        assert results(queue, running) == ["success"] * 2

    @pytest.mark.parametrize("handler", ["hold", "hold_in_thread", "hold_in_process"])
    def test_a_batch_that_still_runs_when_the_drain_ends_is_released_with_its_attempt(
        self, start: Start, queue: Queue, journal: Journal, handler: str
    ) -> None:
        daemon = start({"job": batch(handler)}, shutdown_timeout="0.2s")
        ids = publish(queue, 1, 2, 3)
        journal.entry("start")

        assert daemon.stop() == 0
        assert {(queue.message(each).attempts, queue.message(each).claim_id) for each in ids} == {(0, None)}

    def test_a_daemon_stopped_under_load_leaves_no_lock_and_loses_nothing(
        self, start: Start, queue: Queue, journal: Journal
    ) -> None:
        daemon = start({"job": batch("settle_singly", 20, wait="0s", concurrency=3)}, claim_connections=4)
        queue.publish_many(2000, "job")
        eventually(lambda: len(journal.path.read_text().splitlines()) >= 10)

        assert daemon.stop() == 0

        begun = Counter(each for entry in journal.entries("start") for each in entry["ids"])
        waiting = queue.rows("SELECT id, attempts, claim_id FROM messages.message")
        assert {(row.attempts, row.claim_id) for row in waiting} <= {(0, None)}
        assert set(begun.values()) == {1}
        assert len(begun) + len(waiting) == 2000


class TestTransaction:
    @pytest.mark.parametrize("handler", ["store", "store_in_thread"])
    def test_effects_and_completions_of_the_batch_are_committed_together(
        self, start: Start, queue: Queue, journal: Journal, effects: Callable[[], list[int]], handler: str
    ) -> None:
        start({"job": batch(handler)})

        ids = publish(queue, 1, 2, 3)

        assert journal.entry("done")["completed"] is True
        assert results(queue, ids) == ["success"] * 3
        assert effects() == ids

    def test_messages_with_another_outcome_are_not_part_of_the_transaction(
        self, start: Start, queue: Queue, effects: Callable[[], list[int]]
    ) -> None:
        start({"job": batch("store")})

        ids = publish(queue, 1, "reject", 3)

        assert results(queue, ids) == ["success", "rejected", "success"]
        assert [queue.archived(each).output for each in ids] == [{"stored": ids[0]}, None, {"stored": ids[2]}]
        assert effects() == [ids[0], ids[2]]

    def test_an_output_that_cannot_be_stored_rolls_back_everything_and_names_its_message(
        self, start: Start, queue: Queue, effects: Callable[[], list[int]]
    ) -> None:
        start({"job": batch("store")})

        ids = publish(queue, 1, "NaN", 3)

        assert results(queue, ids) == ["failed"] * 3
        assert f"the output of message {ids[1]} cannot be kept: " in queue.archived(ids[0]).error
        assert effects() == []

    @pytest.mark.parametrize("handler", ["store", "store_in_thread"])
    def test_an_exception_in_the_block_rolls_back_everything(
        self, start: Start, queue: Queue, effects: Callable[[], list[int]], handler: str
    ) -> None:
        start({"job": batch(handler)})

        ids = publish(queue, 1, "raise", 3)

        assert results(queue, ids) == ["failed"] * 3
        assert effects() == []

    def test_a_rolled_back_block_leaves_no_completion(
        self, start: Start, queue: Queue, effects: Callable[[], list[int]]
    ) -> None:
        start({"job": batch("store_and_change_mind")})

        ids = publish(queue, 1, 2)

        assert results(queue, ids) == ["failed"] * 2
        assert queue.archived(ids[0]).error == "nothing was stored"
        assert effects() == []

    @pytest.mark.parametrize("handler", ["store", "store_in_thread"])
    def test_a_lost_message_rolls_back_the_batch_and_the_others_run_again_without_it(
        self, start: Start, queue: Queue, journal: Journal, effects: Callable[[], list[int]], handler: str
    ) -> None:
        daemon = start({"job": batch(handler)})
        ids = publish(queue, 1, "wait", 3)
        journal.entry("stored")

        queue.call("cancel", [ids[0]])
        daemon.open_gate()

        assert results(queue, ids) == ["cancelled", "success", "success"]
        assert effects() == ids[1:]
        assert [sorted(each["ids"]) for each in journal.entries("start")] == [ids, ids[1:]]
        assert {queue.archived(each).attempts for each in ids[1:]} == {1}

    def test_a_batch_whose_daemon_is_killed_before_the_commit_is_done_once_by_another(
        self, start: Start, queue: Queue, journal: Journal, effects: Callable[[], list[int]]
    ) -> None:
        queue.policy("job", max_attempts=2, lock_expired_delay="0 s")
        first = start({"job": batch("store")})
        ids = publish(queue, 1, "die", 3)
        first.exit_code()
        end_locks(queue.conn, first)

        start({"job": batch("store")})

        assert results(queue, ids) == ["success"] * 3
        assert effects() == ids

    @pytest.mark.long
    def test_a_handler_in_a_child_process_has_no_transaction(self, start: Start, queue: Queue) -> None:
        start({"job": batch("store_from_a_child")})

        (published,) = publish(queue, 1)

        assert results(queue, [published]) == ["failed"]
        assert "open a connection of your own" in queue.archived(published).error
