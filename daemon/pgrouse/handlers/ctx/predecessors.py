"""How the messages ended that a handler's message waited for (`ctx.predecessors`)."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

import psycopg
from pydantic_core import from_json

from pgrouse.client.calls.workflow import EndedPredecessor, predecessors
from pgrouse.client.message import Message
from pgrouse.database.run_sync import run_sync
from pgrouse.errors import LockLost
from pgrouse.handlers.ctx.step import AsyncStepConnection, BlockingStepConnection, FindConnection, ask
from pgrouse.handlers.runtime import HandlerRuntime


@dataclass(frozen=True, slots=True)
class Predecessor:
    """A message that the handler's message waited for.

    Attributes:
        id: the id in `after`.
        topic: its topic; None if the database no longer knows it.
        result: how it ended; None if that is no longer kept, or if it has not ended because someone released the
            handler's message by hand.
        output: what its handler returned.
        error: why it did not succeed.
        redriven_as: the message that a redrive made of it; the result is of that message. None = it was not redriven.
    """

    id: int
    topic: str | None
    result: str | None
    output: Any = None
    error: str | None = None
    redriven_as: int | None = None

    @property
    def succeeded(self) -> bool:
        """Whether the result is success."""
        return self.result == "success"


def read_predecessors(
    message: Message, runtime: HandlerRuntime, conn: psycopg.Connection[Any] | None
) -> list[Predecessor]:
    """Return the predecessors of a message that this worker holds.

    conn: the connection of the handler's transaction, if one is open.
    """
    return run_sync(_read(message, runtime, BlockingStepConnection(runtime.blocking_pool), lambda: conn))


def read_predecessors_async(
    message: Message, runtime: HandlerRuntime, connection: FindConnection
) -> Coroutine[Any, Any, list[Predecessor]]:
    """Do the same in an async handler. connection: returns the connection of its transaction when this is awaited."""
    return _read(message, runtime, AsyncStepConnection(runtime.pool), connection)


async def _read(
    message: Message,
    runtime: HandlerRuntime,
    access: AsyncStepConnection | BlockingStepConnection,
    connection: FindConnection,
) -> list[Predecessor]:
    rows = await ask(message, runtime, access, connection(), predecessors(message.id, message.claim_id))
    if not rows:
        raise LockLost(f"message {message.id} is not this worker's any more: its predecessors are not for it to read")
    return [_predecessor(message, runtime, each.id, each) for each in rows if each.id is not None]


def _predecessor(message: Message, runtime: HandlerRuntime, asked: int, ended: EndedPredecessor) -> Predecessor:
    output = None
    if ended.output is not None and ended.topic is not None:
        # An output is encrypted for the topic of its own message.
        output = from_json(runtime.encryption.decrypt_output(message, ended.output, ended.topic))
    return Predecessor(asked, ended.topic, ended.result, output, ended.error, ended.redriven_as)
