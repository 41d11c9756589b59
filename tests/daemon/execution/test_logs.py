"""The log lines of attempts, which a topic with `log_bytes` keeps."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

from pgrouse.client.call import run
from pgrouse.client.queries.message import AttemptLog, find_logs
from tests.daemon.process import Daemon, Fleet, Journal
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue

Start = Callable[..., Daemon]

HANDLERS: dict[str, dict[str, Any]] = {
    "async": {"handler": "chatty:say"},
    "thread": {"handler": "chatty:say_in_thread"},
    "process": {"handler": "chatty:say_in_process", "isolation": "process", "concurrency": 1},
}
everywhere = pytest.mark.parametrize("where", list(HANDLERS))


def keeping(where: str, log_bytes: int = 10_000) -> dict[str, Any]:
    return {**HANDLERS[where], "log_bytes": log_bytes}


def logs(queue: Queue, message: int) -> list[AttemptLog]:
    return run(queue.conn, find_logs(message))


def texts(logged: AttemptLog) -> list[str]:
    """The lines without their times."""
    return [line.partition(" ")[2] if line[:2] == "20" else line for line in logged.lines.split("\n")]


@everywhere
def test_the_lines_of_each_attempt_are_kept_whatever_its_end(start: Start, queue: Queue, where: str) -> None:
    queue.policy(topic="job", max_attempts=3, backoff={"kind": "none"})
    start({"job": keeping(where)})

    fails_first = queue.publish("job", payload={"texts": ["charged 5"], "raises": [1]})
    rejected = queue.publish("job", payload={"reject": True, "by_structlog": True})
    eventually(lambda: queue.archived(fails_first) and queue.archived(rejected))

    first, second = logs(queue, fails_first)
    said = ["INFO shop.orders: before"] * (where == "async") + ["INFO shop.orders: charged 5"]
    in_task = ["INFO shop.orders: in a task"] * (where == "async")
    assert (first.attempt, texts(first)) == (1, [*said, *in_task, "INFO shop.orders: attempt 1"])
    assert (second.attempt, texts(second)) == (2, [*said, *in_task, "INFO shop.orders: attempt 2"])
    assert first.locked_at < first.kept_at < second.kept_at
    (only,) = logs(queue, rejected)
    assert "WARNING chatty: order.late order=7 why='no stock'" in texts(only)


@pytest.mark.long
@everywhere
def test_the_traceback_of_a_caught_error_is_below_its_line(start: Start, queue: Queue, where: str) -> None:
    start({"job": keeping(where)})
    message = queue.publish("job", payload={"caught": True})
    eventually(lambda: queue.archived(message))

    lines = texts(logs(queue, message)[0])
    at = lines.index("ERROR shop.orders: it went wrong")
    assert lines[at + 1] == "    Traceback (most recent call last):"
    assert "    KeyError: 'inner'" in lines[at:]


@everywhere
def test_of_many_lines_the_last_bytes_are_kept_and_the_others_counted(start: Start, queue: Queue, where: str) -> None:
    start({"job": keeping(where, 500)})
    message = queue.publish("job", payload={"times": 2000})
    eventually(lambda: queue.archived(message))

    (logged,) = logs(queue, message)
    kept = texts(logged)
    assert kept[-1] == "INFO shop.orders: attempt 1"
    assert len(logged.lines.encode()) <= 500
    assert logged.left_out + len(kept) == 2001 + 2 * (where == "async")


@pytest.mark.long
@everywhere
def test_texts_that_the_server_cannot_store_or_that_look_like_other_lines_are_written_out(
    start: Start, queue: Queue, where: str
) -> None:
    start({"job": keeping(where)})
    # JSON in PostgreSQL has no such characters: the handler makes them.
    message = queue.publish("job", payload={"odd": True, "texts": ["one\n2026-01-01T00:00:00.000Z INFO x: y"]})
    eventually(lambda: queue.archived(message))

    (logged,) = logs(queue, message)
    assert r"INFO shop.orders: n\x00l \ud800 \x1b[31m" in texts(logged)
    assert "    2026-01-01T00:00:00.000Z INFO x: y" in logged.lines.split("\n")


def test_a_handler_of_the_payload_alone_keeps_its_lines_too(start: Start, queue: Queue) -> None:
    start({"job": {"handler": "chatty:say_at_once", "log_bytes": 1000}})
    message = queue.publish("job", payload={"n": 5})
    eventually(lambda: queue.archived(message))

    assert texts(logs(queue, message)[0]) == ["INFO shop.orders: at once {'n': 5}"]


def test_a_message_that_its_handler_completes_in_its_transaction_keeps_its_lines(start: Start, queue: Queue) -> None:
    start({"job": {"handler": "chatty:complete_itself", "log_bytes": 1000}})
    message = queue.publish("job")

    (logged,) = eventually(lambda: logs(queue, message))
    assert texts(logged) == ["INFO shop.orders: inside", "INFO shop.orders: after"]
    assert queue.archived(message).result == "success"


def test_ack_first_keeps_the_lines_of_a_message_that_has_ended_before(start: Start, queue: Queue) -> None:
    start({"job": {**keeping("async"), "ack_policy": "ack_first"}})
    message = queue.publish("job", payload={"raises": [1]})

    (logged,) = eventually(lambda: logs(queue, message))
    assert "INFO shop.orders: attempt 1" in texts(logged)


def test_a_message_without_lines_has_no_row(start: Start, queue: Queue) -> None:
    start({"job": {"handler": "work:echo", "log_bytes": 1000}})
    message = queue.publish("job")
    eventually(lambda: queue.archived(message))

    assert logs(queue, message) == []


def test_a_topic_that_does_not_ask_sends_nothing(start: Start, queue: Queue) -> None:
    """A trigger counts statements: also one that stores no row would be counted."""
    queue.conn.execute("CREATE TABLE asked (at timestamptz DEFAULT clock_timestamp())")
    queue.conn.execute("GRANT ALL ON asked TO PUBLIC")
    queue.conn.execute(
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql "
        "AS 'BEGIN INSERT INTO public.asked DEFAULT VALUES; RETURN NULL; END'"
    )
    queue.conn.execute(
        "CREATE TRIGGER note BEFORE INSERT ON messages.attempt_log FOR EACH STATEMENT EXECUTE FUNCTION note()"
    )
    start({"quiet": HANDLERS["async"], "job": keeping("async")})
    quiet = queue.publish("quiet", payload={})
    eventually(lambda: queue.archived(quiet))
    assert queue.value("SELECT count(*) FROM asked") == 0

    message = queue.publish("job", payload={})
    eventually(lambda: queue.archived(message))

    assert queue.value("SELECT count(*) FROM asked") == 1
    assert (logs(queue, quiet), len(logs(queue, message))) == ([], 1)


def test_what_a_thread_logs_after_the_attempt_is_not_kept(start: Start, queue: Queue, journal: Journal) -> None:
    daemon = start({"job": {"handler": "chatty:say_late_in_thread", "log_bytes": 1000}})
    message = queue.publish("job")
    eventually(lambda: queue.archived(message))

    daemon.open_gate("late")
    journal.entry("late", message)

    daemon.event("much too late")
    assert [texts(each) for each in logs(queue, message)] == [["INFO shop.orders: in time"]]


def test_a_worker_whose_message_another_one_has_writes_nothing(start: Start, queue: Queue, journal: Journal) -> None:
    queue.policy(topic="job", max_attempts=3, lock_duration="1 s", backoff={"kind": "none"})
    late = start({"job": {"handler": "chatty:hold", "log_bytes": 1000}})
    message = queue.publish("job")
    journal.entry("holds", message)
    late.send(signal.SIGSTOP)
    start({"job": {"handler": "chatty:hold", "log_bytes": 1000}})
    eventually(lambda: len(journal.entries("holds", message)) == 2)

    late.open_gate()
    late.send(signal.SIGCONT)
    eventually(lambda: late.events("message.lock_lost") or late.events("message.cancelled"))
    assert logs(queue, message) == []


def test_a_drained_handler_keeps_its_lines_with_the_message_that_is_released(
    start: Start, queue: Queue, journal: Journal
) -> None:
    daemon = start({"job": {"handler": "chatty:hold", "log_bytes": 1000}}, shutdown_timeout="0s")
    message = queue.publish("job")
    journal.entry("holds", message)

    daemon.send(signal.SIGTERM)

    (logged,) = eventually(lambda: logs(queue, message))
    assert texts(logged) == ["INFO shop.orders: holding, attempt 1"]
    eventually(lambda: queue.message(message).claim_id is None)


def test_a_worker_that_dies_leaves_no_lines(start: Start, queue: Queue, journal: Journal) -> None:
    daemon = start({"job": {"handler": "chatty:hold", "log_bytes": 1000}})
    message = queue.publish("job")
    journal.entry("holds", message)

    daemon.send(signal.SIGKILL)

    daemon.process.wait(60)
    assert logs(queue, message) == []


def test_passwords_are_hidden(start: Start, queue: Queue) -> None:
    start({"job": keeping("async")}, environ={"PGPASSWORD": "open-sesame"})
    message = queue.publish("job", payload={"texts": ["it is open-sesame, look"]})
    eventually(lambda: queue.archived(message))

    assert "open-sesame" not in logs(queue, message)[0].lines


@pytest.mark.parametrize(("detail", "kept"), [("text", 1), ("type", 0)])
def test_lines_of_encrypted_messages_are_kept_as_their_errors_are(
    start: Start, queue: Queue, detail: str, kept: int
) -> None:
    crypto = {"current": "now", "topics": ["job"], "error_detail": detail}
    start(
        {"job": keeping("async")},
        sections={"crypto": crypto, "crypto.keys.now": {"env": "TEST_KEY"}},
        environ={"TEST_KEY": "A" * 43 + "="},
    )
    message = queue.publish("job", payload={})
    eventually(lambda: queue.archived(message))

    assert len(logs(queue, message)) == kept


def test_the_lines_of_a_batch_belong_to_no_message(fleet: Fleet, database: Database) -> None:
    daemon = fleet.launch({"job": {"handler": "work:echo", "batch_size": 5, "log_bytes": 10}}, dsn=database.dsn)

    assert daemon.exit_code() == 78
    assert "remove log_bytes or batch_size" in daemon.log.read_text()
