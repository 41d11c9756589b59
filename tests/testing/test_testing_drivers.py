"""`drain` on the connection of any driver: handlers see what the test has not committed."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from pgrouse import AsyncContext, Context, Defer, Fail, Reject, Retry
from pgrouse.testing import at, drain, published
from tests.drivers.callers import CALLERS, DISTINCT
from tests.server.postgres import Database

# What means something to a server or to a driver.
TEXT = "it's 100%% :name ::int \\ $1 %s \" {1,NULL} é 漢\n"


class Undo(Exception):
    """Rolls the transaction of a test back."""


def ends(payload: dict[str, Any], ctx: Context) -> Any:
    """Ends as its payload says."""
    match payload.get("ends"):
        case "retry":
            return Retry("1h", reason=TEXT, state={"at": TEXT})
        case "defer":
            return Defer("1h", state=[TEXT])
        case "reject":
            raise Reject(TEXT)
        case "fail":
            raise Fail(TEXT)
        case "error":
            raise ValueError(TEXT)
    return {"echo": payload, "headers": dict(ctx.headers), "key": ctx.key}


async def ends_async(payload: dict[str, Any], ctx: AsyncContext) -> Any:
    return ends(payload, ctx)  # type: ignore[arg-type]


def handlers(it: Any) -> dict[str, Any]:
    is_async = it.wait.__qualname__.startswith("awaited")
    return {"end": ends_async if is_async else ends}


@pytest.fixture(params=DISTINCT)
def caller(request: pytest.FixtureRequest, database: Database) -> Any:
    return lambda: CALLERS[request.param](database.dsn)


def test_uncommitted_messages_are_processed_and_everything_is_rolled_back(caller: Any, database: Database) -> None:
    with pytest.raises(Undo), caller() as it:  # noqa: PT012 - the block is a transaction
        it.publish("end", {"text": TEXT}, key="k", headers={"h": TEXT})

        (attempt,) = it.wait(drain(it.conn, handlers(it)))

        assert attempt.output == {"echo": {"text": TEXT}, "headers": {"h": TEXT}, "key": "k"}
        assert [each["key"] for each in it.wait(published(it.conn, "end"))] == ["k"]
        raise Undo
    assert published(database.connect()) == []


def test_every_outcome_is_settled_as_by_a_daemon(caller: Any, database: Database) -> None:
    for each in ("retry", "defer", "reject", "fail", "error"):
        with caller() as it:
            message_id = it.publish("end", {"ends": each}, max_attempts=2)
            attempts = it.wait(drain(it.conn, handlers(it)))
            assert [a.outcome for a in attempts] == [each if each != "error" else "retry"]
        rows = database.connect().execute(
            "SELECT result::text, error, NULL::jsonb FROM messages.message_archive WHERE id = %(id)s "
            "UNION ALL SELECT NULL, history #>> '{-1,error}', state FROM messages.message WHERE id = %(id)s",
            {"id": message_id},
        )
        (result, error, state) = rows.fetchone() or (None, None, None)
        assert result == {"reject": "rejected", "fail": "failed"}.get(each)
        assert error is None if each == "defer" else TEXT.strip() in str(error)
        assert state == {"retry": {"at": TEXT}, "defer": [TEXT]}.get(each)


def test_bytes_arrive_as_they_are(caller: Any) -> None:
    with caller() as it:
        it.publish("end", body=bytes(range(256)))

        def keep(payload: bytes) -> str:
            return payload.hex()

        async def keep_async(payload: bytes) -> str:
            return payload.hex()

        chosen = keep if handlers(it)["end"] is ends else keep_async
        (attempt,) = it.wait(drain(it.conn, {"end": chosen}))

        assert bytes.fromhex(attempt.output) == bytes(range(256))


def test_a_later_time_makes_a_delayed_message_ready(caller: Any) -> None:
    with caller() as it:
        it.publish("end", {}, delay="1h")
        assert it.wait(drain(it.conn, handlers(it))) == []

        async def later() -> Any:
            async with at(it.conn, "2h"):
                return await drain(it.conn, handlers(it))

        if handlers(it)["end"] is ends:
            with at(it.conn, "2h"):
                attempts = drain(it.conn, handlers(it))
        else:
            attempts = it.wait(later())
        assert [each.outcome for each in attempts] == ["complete"]


def test_a_message_that_a_handler_publishes_is_processed_too(caller: Any) -> None:
    def split(payload: int, ctx: Context) -> None:
        ctx.publish("end", {"n": payload})

    async def split_async(payload: int, ctx: AsyncContext) -> None:
        await ctx.publish("end", {"n": payload})

    with caller() as it:
        it.publish("split", 7)
        chosen = handlers(it)
        attempts = it.wait(drain(it.conn, {**chosen, "split": split if chosen["end"] is ends else split_async}))

        assert [(each.topic, each.outcome) for each in attempts] == [("split", "complete"), ("end", "complete")]


@pytest.mark.parametrize("name", ["asyncpg", "sqlalchemy async session asyncpg"])
def test_a_handler_completes_its_message_on_the_session_of_the_test(database: Database, name: str) -> None:
    with CALLERS[name](database.dsn) as it:
        it.execute("CREATE TABLE points (n int)")
        it.publish("points", {})

        async def count(payload: Any, ctx: AsyncContext) -> None:
            await ctx.complete(it.conn, {"counted": True})

        (attempt,) = it.wait(drain(it.conn, {"points": count}))

        assert (attempt.outcome, attempt.output) == ("complete", {"counted": True})


@pytest.mark.parametrize("name", ["sqlalchemy async session psycopg", "sqlalchemy session", "django", "psycopg cursor"])
def test_what_is_on_psycopg_gives_handlers_their_transaction(database: Database, name: str) -> None:
    def block(payload: Any, ctx: Context) -> None:
        with ctx.transaction() as conn:
            conn.execute("INSERT INTO points VALUES (1)")

    async def block_async(payload: Any, ctx: AsyncContext) -> None:
        async with ctx.transaction() as conn:
            await conn.execute("INSERT INTO points VALUES (1)")

    with pytest.raises(Undo), CALLERS[name](database.dsn) as it:  # noqa: PT012 - the block is a transaction
        it.execute("CREATE TABLE points (n int)")
        it.publish("points", {})

        (attempt,) = it.wait(drain(it.conn, {"points": block if handlers(it)["end"] is ends else block_async}))

        assert attempt.succeeded, attempt.error
        raise Undo
    with pytest.raises(psycopg.errors.UndefinedTable):
        database.connect().execute("SELECT FROM points")


@pytest.mark.parametrize("use", ["transaction", "step"])
def test_on_another_driver_the_error_says_what_a_handler_cannot_use(database: Database, use: str) -> None:
    async def block(payload: Any, ctx: AsyncContext) -> None:
        if use == "step":
            await ctx.step("a", int, 1)
        else:
            async with ctx.transaction():
                pass

    with CALLERS["asyncpg"](database.dsn) as it:
        it.publish("points", {})

        (attempt,) = it.wait(drain(it.conn, {"points": block}))

        assert "Give drain() a connection of psycopg, or a connection string" in str(attempt.error)


def test_what_is_no_connection_is_refused_with_the_known_kinds() -> None:
    with pytest.raises(TypeError, match="drain needs a psycopg Connection or AsyncConnection, or a connection of"):
        drain(object(), {})  # type: ignore[call-overload]
