"""An outcome that the server refuses affects only its own message."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace

import psycopg
import pytest
from psycopg.types.json import Jsonb

from pgrouse.client.processing.settlement import SettleKind, Settlement
from pgrouse.client.processing.worker_client import ClaimRequest, WorkerClient
from pgrouse.process.wake_event import WakeEvents
from pgrouse.worker.execution.in_flight import InFlight
from pgrouse.worker.execution.settle_buffer import SettleBuffer
from pgrouse.worker.loop import claim_loop
from pgrouse.worker.loop.claim_loop import ClaimLoop
from tests.daemon.process import Daemon, Journal
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue

Start = Callable[..., Daemon]


OBSTACLES = {
    "a constraint": "ALTER TABLE messages.message_archive ADD CONSTRAINT "
    "no_long_outputs CHECK (length(output::text) < 3000)",
    "an index": "CREATE INDEX too_small_a_page ON messages.message_archive ((output::text))",
}


@pytest.mark.parametrize("obstacle", OBSTACLES.values(), ids=OBSTACLES)
def test_a_completion_whose_output_is_refused_is_stored_without_it(start: Start, queue: Queue, obstacle: str) -> None:
    queue.conn.execute(obstacle.encode())
    daemon = start({"job": "work:echo"})

    # Random, so that it cannot be compressed.
    long = "(SELECT to_jsonb(string_agg(md5(random()::text), '')) FROM generate_series(1, 300))"
    queue.conn.execute(
        f"INSERT INTO messages.message (topic, payload) SELECT 'job', CASE WHEN n = 50 THEN {long} ELSE to_jsonb(n) END"
        " FROM generate_series(1, 100) AS n".encode()
    )

    eventually(lambda: queue.ids() == [])
    ended = queue.rows("SELECT id, result, output, attempts FROM messages.message_archive")
    assert {(row.result, row.attempts) for row in ended} == {("success", 1)}
    (without,) = [row.id for row in ended if row.output is None]
    assert daemon.event("settle.refused", message_id=without)["kind"] == "complete"


def test_an_invalid_outcome_fails_with_the_reason(start: Start, queue: Queue) -> None:
    start({"job": "hostile:answer_nonsense", "fine": "work:echo"})

    published = {what: queue.publish("job", payload=Jsonb(what)) for what in ("a number", "a word", "a date")}
    fine = queue.publish_many(20, "fine")

    ended = {what: eventually(lambda each=each: queue.archived(each)) for what, each in published.items()}
    assert {row.result for row in ended.values()} == {"failed"}
    assert all("was refused by the server" in row.error for row in ended.values())
    assert all(eventually(lambda each=each: queue.archived(each)).result == "success" for each in fine)


MISTAKES = {
    "a class": "TypeError: the handler returned the class Reject: return an outcome, Reject(...)",
    "a class of an exception": "TypeError: the handler returned the class ValueError",
    "a word as a time": "ValueError: Retry(after=...) is 'soon': give a timedelta, a number of seconds, or a text like",
    "not a number": "ValueError: Defer(after=...) is nan: give a timedelta, a number of seconds, or a text like",
    "a time in the past": "ValueError: Retry(after=...) is -1: give a timedelta",
    "a naive word": "TypeError: Defer(until=...) has the type str: give a datetime with its time zone",
    "an unawaited coroutine": "TypeError: the handler returned a coroutine, which is never awaited",
    "an unused generator": "TypeError: the handler returned a generator, which has not run",
}


@pytest.mark.long
def test_a_return_value_that_is_surely_a_mistake_is_no_success(start: Start, queue: Queue) -> None:
    child = {"handler": "hostile:err_in_a_child", "isolation": "process", "concurrency": 1}
    daemon = start({"loop": "hostile:err", "thread": "hostile:err_in_thread", "child": child})

    published = {
        (topic, what): queue.publish(topic, payload=Jsonb(what))
        for topic in ("loop", "thread", "child")
        for what in MISTAKES
        # A child awaits what its handler returns.
        if (topic, what) != ("child", "an unawaited coroutine")
    }

    ended = {each: eventually(lambda id_=id_: queue.archived(id_), 60) for each, id_ in published.items()}
    assert {row.result for row in ended.values()} == {"failed"}
    assert [each for each, row in ended.items() if MISTAKES[each[1]] not in row.error] == []
    assert daemon.events("settle.refused") == []


def test_a_mistake_after_an_acknowledgement_is_logged(start: Start, queue: Queue) -> None:
    daemon = start({"job": "hostile:err_acknowledged"})

    published = queue.publish("job", payload=Jsonb("a class"))

    ended = eventually(lambda: queue.archived(published))
    assert (ended.result, ended.output) == ("success", "done")
    assert "the class Reject" in daemon.event("attempt.error_ignored", message_id=published)["reason"]


UNWRITABLE = {
    "a huge number": "its outcome (retry, after: int) cannot be written: ValueError: Exceeds the limit",
    "no text": "its outcome (retry, after: str) cannot be written: UnicodeEncodeError: 'utf-8' codec can't encode",
    "no zone": "its outcome (defer, until: datetime) cannot be written: RuntimeError: it is not known",
    "a lost zone": "its outcome (defer, until: datetime) cannot be written: FileNotFoundError: it is not there",
}


def test_an_outcome_that_cannot_be_written_fails_with_the_reason_and_affects_no_other(
    start: Start, queue: Queue
) -> None:
    daemon = start({"job": "hostile:answer_nonsense", "fine": "work:echo"}, claim_connections=1)

    # In one transaction, so that they are claimed and settled together.
    with queue.conn.transaction():
        published = {what: queue.publish("job", payload=Jsonb(what)) for what in UNWRITABLE}
        fine = queue.publish_many(20, "fine")

    ended = {what: eventually(lambda each=each: queue.archived(each)) for what, each in published.items()}
    assert {row.result for row in ended.values()} == {"failed"}
    assert [what for what, row in ended.items() if not row.error.startswith(UNWRITABLE[what])] == []
    ends = [eventually(lambda each=each: queue.archived(each)) for each in fine]  # type: ignore[misc]
    assert {(row.result, row.attempts) for row in ends} == {("success", 1)}
    assert len(daemon.events("settle.refused")) == len(published)
    assert daemon.alive


def test_a_message_that_cannot_be_settled_at_all_is_given_up_and_the_others_continue(
    start: Start, queue: Queue, journal: Journal
) -> None:
    queue.conn.execute(
        """
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not this one'; END $$;
        CREATE TRIGGER refuse BEFORE INSERT ON messages.message_archive
        FOR EACH ROW WHEN (NEW.payload = '"poison"') EXECUTE FUNCTION refuse();
        """
    )
    daemon = start({"job": "work:echo"})

    poison = queue.publish("job", payload=Jsonb("poison"))
    assert daemon.event("settle.failed", message_id=poison)["reason"].startswith("not this one")
    others = queue.publish_many(200, "job")

    eventually(lambda: queue.ids() == [poison])
    assert queue.value("SELECT count(*) FROM messages.message_archive WHERE result = 'success'") == len(others)
    assert len(journal.entries("start", poison)) == 1
    assert daemon.stop() == 0


@pytest.mark.long
@pytest.mark.parametrize(("bound", "is_doubtful"), [("TURN_TIMEOUT_S", False), ("SUSPECT_TURN_TIMEOUT_S", True)])
def test_a_single_settle_that_waits_too_long_is_requeued_with_all_behind_it(
    database: Database, queue: Queue, monkeypatch: pytest.MonkeyPatch, bound: str, is_doubtful: bool
) -> None:
    monkeypatch.setattr(claim_loop, bound, 5.0)
    published = queue.publish_many(3)
    settle_buffer, in_flight = SettleBuffer(WakeEvents()), InFlight()

    async def main() -> None:
        async with await psycopg.AsyncConnection.connect(database.dsn, autocommit=True) as conn:
            client = WorkerClient(conn, "w/0")
            got = await client.settle_and_claim([], ClaimRequest(["t"], 3))
            for each in got.claimed:
                settle_buffer.add([Settlement(each, SettleKind.COMPLETE)])
            one = ClaimLoop(
                0, SimpleNamespace(worker="w"), None, settle_buffer, SimpleNamespace(in_flight=in_flight), None
            )  # type: ignore[arg-type]
            if is_doubtful:
                one.suspect_connection()
            with database.connect() as other, other.transaction():
                other.execute("SELECT FROM messages.message WHERE id = %s FOR UPDATE", [published[1]])
                async with asyncio.timeout(60):
                    with pytest.raises(TimeoutError):
                        await one._settle_one_by_one(client)

    asyncio.run(main())
    assert [each.message.id for each in settle_buffer.waiting] == published[1:]
    assert (settle_buffer.settling, queue.archived(published[0]).result) == (0, "success")
