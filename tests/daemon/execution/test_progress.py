"""ctx.progress and ctx.cancelled: what others see of a running handler, and what it sees of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.daemon.process import AT_ONCE_S, Daemon, Journal, now
from tests.server.deadline import eventually
from tests.sql.queue import Queue

Start = Callable[..., Daemon]

HANDLERS = {
    "async": "reporting:report",
    "thread": "reporting:report_in_thread",
    "process": {"handler": "reporting:report_in_process", "isolation": "process", "concurrency": 1},
}
everywhere = pytest.mark.parametrize("where", list(HANDLERS))


def progress(queue: Queue, published: int) -> Any:
    return queue.message(published).progress


@everywhere
def test_progress_is_visible_while_the_handler_runs_and_the_last_value_remains(
    start: Start, queue: Queue, journal: Journal, where: str
) -> None:
    daemon = start({"job": HANDLERS[where]})
    published = queue.publish("job", payload={"steps": [[30, 100, "rows"]], "last": [100, 100, "rows"]})

    eventually(lambda: progress(queue, published) == {"done": 30, "total": 100, "unit": "rows"})
    assert queue.message(published).claim_id is not None
    daemon.open_gate()

    ended = eventually(lambda: queue.archived(published))
    assert (ended.result, ended.progress) == ("success", {"done": 100, "total": 100, "unit": "rows"})


@pytest.mark.long
@everywhere
def test_the_last_of_several_quick_reports_is_written_without_waiting_for_the_end(
    start: Start, queue: Queue, journal: Journal, where: str
) -> None:
    start({"job": HANDLERS[where]})
    published = queue.publish("job", payload={"steps": [[n] for n in range(1, 501)]})

    eventually(lambda: progress(queue, published) == {"done": 500})


@pytest.mark.long
def test_a_handler_that_reports_continuously_is_written_about_once_a_second(
    start: Start, queue: Queue, journal: Journal
) -> None:
    queue.conn.execute("CREATE TABLE written (at timestamptz DEFAULT clock_timestamp())")
    queue.conn.execute("GRANT ALL ON written TO PUBLIC")
    queue.conn.execute(
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql "
        "AS 'BEGIN INSERT INTO public.written DEFAULT VALUES; RETURN NULL; END'"
    )
    queue.conn.execute(
        "CREATE TRIGGER note AFTER UPDATE OF progress ON messages.message FOR EACH ROW EXECUTE FUNCTION note()"
    )
    daemon = start({"job": "reporting:report_fast"})
    published = queue.publish("job")
    eventually(lambda: queue.value("SELECT count(*) FROM written") >= 3)

    daemon.open_gate("enough")
    count = journal.entry("counted", published)["count"]
    eventually(lambda: progress(queue, published) == {"done": count})
    daemon.open_gate()
    eventually(lambda: queue.archived(published))

    written = queue.row(
        "SELECT count(*) AS times, extract(epoch FROM max(at) - min(at))::float8 AS within_s FROM written"
    )
    assert count > 1000
    # One at the start, one each second, one for the last, one with the settle.
    assert written.times <= written.within_s + 3


def test_a_blocked_event_loop_does_not_delay_progress(start: Start, queue: Queue, journal: Journal) -> None:
    daemon = start({"job": "reporting:report_blocking"})
    published = queue.publish("job")

    eventually(lambda: progress(queue, published) == {"done": 1, "total": 2})
    daemon.open_gate()
    assert eventually(lambda: queue.archived(published)).result == "success"


def test_progress_belongs_to_the_transaction_that_completes_the_message(start: Start, queue: Queue) -> None:
    start({"job": "reporting:report_in_transaction"})
    published = queue.publish("job")

    ended = eventually(lambda: queue.archived(published))

    assert (ended.result, ended.progress) == ("success", {"done": 3, "total": 3, "unit": "rows"})


def test_an_invalid_progress_or_time_is_refused_with_the_argument_and_its_value(
    start: Start, queue: Queue, journal: Journal
) -> None:
    start({"job": "reporting:report_nonsense"})
    published = queue.publish("job")
    eventually(lambda: queue.archived(published))

    found = [entry["error"] for entry in journal.entries("refused", published)]
    assert [each.partition(":")[0] for each in found] == [
        "ctx.progress(done=-1)",
        "ctx.progress(done='many')",
        "ctx.progress(total=nan)",
        "ctx.progress(done=True)",
        f"ctx.progress(unit='{'x' * 51}')",
        "ctx.progress(unit=5)",
        "ctx.heartbeat(extend=-1)",
        "ctx.heartbeat(extend='soon')",
        "ctx.heartbeat(extend=datetime.timedelta(days=8))",
        "ctx.heartbeat(extend=nan)",
    ]


@pytest.mark.parametrize("handler", ["reporting:poll", "reporting:poll_in_thread"])
def test_a_handler_sees_that_its_message_was_cancelled(
    start: Start, queue: Queue, journal: Journal, handler: str
) -> None:
    queue.policy("job", lock_duration="1 hour")
    start({"job": handler})
    published = queue.publish("job")
    assert journal.entry("start", published)["cancelled"] is False

    said_at = now()
    queue.call("cancel", [published])

    seen = journal.entry("end", published)
    assert seen["cancelled"] is True
    assert seen["at"] - said_at < AT_ONCE_S, "the notification reported it, not the next heartbeat"


@pytest.mark.parametrize("handler", ["reporting:poll", "reporting:poll_in_thread"])
def test_a_lost_lock_is_not_reported_as_a_cancellation(
    start: Start, queue: Queue, journal: Journal, handler: str
) -> None:
    start({"job": handler}, maintenance_interval="1h")
    queue.policy("job", lock_duration="0.5 s")
    published = queue.publish("job")
    journal.entry("start", published)

    queue.conn.execute("UPDATE messages.message SET claim_id = claim_id + 1 WHERE id = %s", [published])

    assert journal.entry("end", published)["cancelled"] is False
