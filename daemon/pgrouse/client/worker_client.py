"""One method per SQL function that a daemon calls; no decisions.

`Store.exchange` is the heart: one round trip that settles what ended and claims what comes next, in one transaction.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import groupby
from operator import attrgetter
from typing import Any

from psycopg import AsyncConnection, AsyncCursor, DataError, Error
from psycopg.adapt import PyFormat, Transformer

from pgrouse.client.message import Message
from pgrouse.handlers.outcome import Ended, Kind

CLAIM = (
    f"SELECT {', '.join(Message._fields)} FROM messages.claim"  # noqa: S608 - names of fields
    "(%s, %s::pg_catalog.text[], %s, %s::int[], p_after_topic => %s, p_after_channels => %s::pg_catalog.jsonb,"
    " p_start => %s, p_contents => %s)"
)
HELD = f"SELECT {', '.join(Message._fields)} FROM messages.held(%s::bigint[], %s::bigint[])"  # noqa: S608 - names of fields
# Nobody waits for the disk before a handler runs: what a crash of the server takes back is a lock, and the fence sees to the rest.
# A transaction that settles does wait. See docs/decisions/0008-claims-do-not-wait-for-the-disk.md.
UNFLUSHED = "pg_catalog.set_config('synchronous_commit', 'off', true)"
OLDEST_XID = "SELECT messages.oldest_xid()"
OLDEST_XID_UNFLUSHED = f"SELECT messages.oldest_xid(), {UNFLUSHED}"
ARM = f"SELECT messages.arm(%s, %s, pg_catalog.make_interval(secs => %s)), {UNFLUSHED}"
# In the transaction of the claim: what that held back because of a limit, next_due looks beyond.
NEXT_DUE = (
    "SELECT pg_catalog.date_part('epoch', messages.next_due(%s::pg_catalog.text[])),"
    " coalesce(pg_catalog.current_setting('messages.held_back', true), '') OPERATOR(pg_catalog.<>) ''"
)


@dataclass(slots=True)
class Want:
    """What a claim asks for.

    Attributes:
        topics: what the worker handles and has room for.
        limit: at most so many messages.
        slots: per topic, at most so many; None = no bound of its own.
        after_topic: where the last claim ended.
        after_channels: the same within each topic, as JSON.
        start: so many begin at once, the others wait in the worker and their run is not counted yet; None = all begin.
        batches: the same for the topics of batch handlers; a claim of its own, in the same transaction.
        contents: whether payloads, bodies, headers and states come with it; without them they are read message by message.
    """

    topics: list[str]
    limit: int
    slots: list[int | None] | None = None
    after_topic: str | None = None
    after_channels: str | None = None
    start: int | None = None
    batches: Want | None = None
    contents: bool = True

    @property
    def parts(self) -> list[Want]:
        """The claims that it takes, mostly one."""
        both = [self] if self.batches is None else [self, self.batches]
        return [each for each in both if each.topics]


@dataclass(slots=True)
class Exchange:
    """What came back from one round trip.

    Attributes:
        claimed: the messages that are this worker's now.
        lost: of those settled, the ids whose lock had been lost.
        next_due_s: seconds until the next delayed message is due, if that was asked for and one waits.
        held_back: whether the claim passed over messages because of a limit.
        own_xid: a transaction id taken after arming, if that was asked for.
        oldest_xid: all transactions below it had ended before the claim.
    """

    claimed: list[Message] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    next_due_s: float | None = None
    held_back: bool = False
    own_xid: int | None = None
    oldest_xid: int | None = None


class Unwritable(DataError):
    """A value that a handler gave cannot be written for the server."""


class Store:
    """The SQL functions on one connection.

    Args:
        conn: an autocommit connection that nobody else uses.
        worker: the name under which this worker claims.
        sleeper: the name under which it sleeps, that of the registry; the same unless given.
    """

    def __init__(self, conn: AsyncConnection, worker: str, sleeper: str | None = None) -> None:
        self.conn = conn
        self.worker = worker
        self.sleeper = sleeper or worker

    async def exchange(
        self,
        ended: Sequence[Ended],
        want: Want | None,
        *,
        begun: Sequence[Message] = (),
        arm: tuple[list[str], float] | None = None,
        disarm: bool = False,
    ) -> Exchange:
        """Settle, then claim, in one round trip.

        Args:
            ended: the attempts to settle, in one transaction with the claim.
            want: what to claim; None claims nothing.
            begun: messages that had waited in the worker and have begun since: their run is counted now.
            arm: topics and seconds until the next look by itself: commit the flag and take an own transaction id, before the claim.
            disarm: take the flag down, in the transaction of the claim.
        """
        got = Exchange()
        async with self.conn.pipeline() as pipeline:
            if arm is not None:
                await self._execute(ARM, [self.sleeper, *arm])
                await pipeline.sync()
                own = await self._execute("SELECT messages.own_xid()", [])
                await pipeline.sync()
            if noted := [(each.message, each.progress) for each in ended if each.progress is not None]:
                # By itself: it takes its rows' locks in no order that the settles know of.
                await self._execute(*progress_statement(noted))
                await pipeline.sync()
            if disarm:
                await self._execute("SELECT messages.disarm(%s)", [self.sleeper])
            if begun:
                await self._execute("SELECT messages.started(%s::bigint[], %s::bigint[])", _claims(begun))
            settled = [await self._settle(kind, batch) for kind, batch in _by_kind(ended)]
            if want is not None:
                oldest = await self._execute(OLDEST_XID if ended else OLDEST_XID_UNFLUSHED, [])
                claims = [await self._claim(each) for each in want.parts]
                due = await self._execute(NEXT_DUE, [[topic for each in want.parts for topic in each.topics]])
        if arm is not None:
            got.own_xid = await _one(own)
        for cursor in settled:
            got.lost += await _one(cursor)
        if want is not None:
            got.oldest_xid = await _one(oldest)
            got.claimed = [Message._make(row) for claim in claims for row in await claim.fetchall()]
            got.next_due_s, got.held_back = await due.fetchone() or (None, False)
        return got

    async def release_forgotten(self, known: list[int]) -> list[int]:
        """Release what this worker has locked without knowing it; return the ids."""
        return list(
            await _one(
                await self._execute(
                    "SELECT messages.release_forgotten(%s, %s::bigint[])", [self.worker, _bigints(known)]
                )
            )
        )

    async def contents(self, message: Message) -> Message | None:
        """Return a message that was claimed without its contents with them; None if it is not this worker's any more."""
        row = await (await self._execute(HELD, _claims([message]))).fetchone()
        if row is None:
            return None
        held = Message._make(row)
        return message._replace(payload=held.payload, body=held.body, headers=held.headers, state=held.state)

    async def reject(self, message: Message, reason: str) -> None:
        """Archive a message as rejected. One that is not this worker's any more is left alone."""
        await self._settle(Kind.REJECT, [Ended(message, Kind.REJECT, error=reason)])

    async def tick(self, unless_within_s: float) -> dict[str, int]:
        """Run the maintenance, unless another daemon did so just now; return what each task did, -1 for one that failed."""
        statement = (
            "SELECT task, did FROM messages.tick('daemon', p_unless_within => pg_catalog.make_interval(secs => %s))"
        )
        rows = await (await self._execute(statement, [unless_within_s])).fetchall()
        return dict(rows)

    async def raise_low_water(self) -> int:
        """Move the marks from which claims read; return how many there are."""
        return int(await _one(await self._execute("SELECT messages.raise_low_water()", [])))

    async def fire_schedules(self) -> float:
        """Publish what the schedules owe; return the seconds until they owe something again, infinity if never."""
        await self._execute("SELECT messages.fire_schedules()", [])
        due = await self._execute("SELECT pg_catalog.date_part('epoch', messages.next_schedule_due())", [])
        due_s = await _one(due)
        return math.inf if due_s is None else float(due_s)

    async def _claim(self, want: Want) -> AsyncCursor:
        return await self._execute(
            CLAIM,
            [
                *(self.worker, want.topics, want.limit, want.slots),
                *(want.after_topic, want.after_channels, want.start, want.contents),
            ],
        )

    async def _settle(self, kind: Kind, batch: list[Ended]) -> AsyncCursor:
        statement, values = settle_statement(kind, batch)
        try:
            return await self._execute(statement, values)
        except Error:
            raise
        except Exception:
            self._check_writable(values)
            raise

    def _check_writable(self, values: Sequence[Any]) -> None:
        """Write values as an execution does. That runs code of theirs, a time zone's for instance, which may raise anything."""
        try:
            Transformer(self.conn).dump_sequence(values, [PyFormat.AUTO] * len(values))
        except Exception as error:
            raise Unwritable("".join(traceback.format_exception_only(error)).strip()) from error

    async def _execute(self, statement: str | bytes, values: Sequence[Any]) -> AsyncCursor:
        cursor = self.conn.cursor(binary=True)
        await cursor.execute(statement.encode() if isinstance(statement, str) else statement, values)
        return cursor


KIND = attrgetter("kind")

# Which settle function a kind stands for, and which fields of Ended it takes beyond id and claim_id.
SETTLE: dict[Kind, tuple[str, tuple[str, ...]]] = {
    Kind.COMPLETE: (
        "SELECT messages.complete(%s::bigint[], %s::bigint[], %s::pg_catalog.text[]::pg_catalog.jsonb[])",
        ("output",),
    ),
    Kind.RETRY: (
        "SELECT messages.retry(%s::bigint[], %s::bigint[], %s::pg_catalog.text[], %s::interval[], %s::pg_catalog.text[]::pg_catalog.jsonb[])",
        ("error", "after", "state"),
    ),
    Kind.EXPIRE: (
        "SELECT messages.retry(%s::bigint[], %s::bigint[], %s::pg_catalog.text[], p_result => 'lock_expired')",
        ("error",),
    ),
    Kind.REJECT: ("SELECT messages.reject(%s::bigint[], %s::bigint[], %s::pg_catalog.text[])", ("error",)),
    Kind.FAIL: ("SELECT messages.fail(%s::bigint[], %s::bigint[], %s::pg_catalog.text[])", ("error",)),
    Kind.DEFER: (
        "SELECT messages.defer(%s::bigint[], %s::bigint[], %s::interval[], %s::pg_catalog.timestamptz[], %s::pg_catalog.text[]::pg_catalog.jsonb[])",
        ("after", "until", "state"),
    ),
    Kind.RELEASE: ("SELECT messages.release(%s::bigint[], %s::bigint[], %s::boolean[])", ("ran",)),
}


def settle_statement(kind: Kind, batch: Sequence[Ended]) -> tuple[bytes, list[Any]]:
    """Return the statement that settles attempts which ended alike. Its row has the ids of those whose lock was lost."""
    statement, columns = SETTLE[kind]
    ids = _bigints(e.message.id for e in batch)
    claims = _bigints(e.message.claim_id for e in batch)
    given = [[getattr(e, column) for e in batch] for column in columns]
    some = [values if any(v is not None for v in values) else None for values in given]
    return statement.encode(), [ids, claims, *some]


def complete_statement(messages: Sequence[Message], outputs: list[str | None]) -> tuple[bytes, list[Any]]:
    """Return the statement that completes messages. Its row has the ids of those whose lock was lost: ([],) if there are none."""
    return SETTLE[Kind.COMPLETE][0].encode(), [[m.id for m in messages], [m.claim_id for m in messages], outputs]


def heartbeat_statement(messages: Iterable[Message], lock_for: timedelta | None = None) -> tuple[bytes, list[Any]]:
    """Return the statement that extends the locks of these messages, to the topic's time from now unless one is given."""
    return b"SELECT messages.heartbeat(%s::bigint[], %s::bigint[], %s)", [*_claims(messages), lock_for]


def cancelled_statement(messages: Iterable[Message]) -> tuple[bytes, list[Any]]:
    """Return the statement that tells which of these, whose lock was lost, were cancelled."""
    return b"SELECT messages.was_cancelled(%s::bigint[], %s::bigint[])", _claims(messages)


def progress_statement(noted: Sequence[tuple[Message, str]], *, wait: bool = True) -> tuple[bytes, list[Any]]:
    """Return the statement that writes how far these messages are. wait: also for rows that others hold at this moment."""
    claims = _claims(message for message, _ in noted)
    return b"SELECT messages.progress(%s::bigint[], %s::bigint[], %s::pg_catalog.text[]::pg_catalog.jsonb[], %s)", [
        *claims,
        [text for _, text in noted],
        wait,
    ]


def _claims(messages: Iterable[Message]) -> list[Any]:
    held = list(messages)
    return [_bigints(m.id for m in held), _bigints(m.claim_id for m in held)]


def _by_kind(ended: Iterable[Ended]) -> Iterable[tuple[Kind, list[Ended]]]:
    in_order = sorted(ended, key=KIND)
    return ((kind, list(batch)) for kind, batch in groupby(in_order, KIND))


def _bigints(numbers: Iterable[int]) -> str:
    """Return an array literal: for hundreds of ids far cheaper than adapting a list element by element."""
    return "{" + ",".join(map(str, numbers)) + "}"


async def _one(cursor: AsyncCursor) -> Any:
    row = await cursor.fetchone()
    return None if row is None else row[0]
