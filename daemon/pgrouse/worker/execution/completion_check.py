"""Finds out what happened to messages that handlers completed in their own transactions (`ctx.complete()`).

The handler committed such a transaction before it ended, or never. Only the database knows which. While the transaction
is open it holds its messages, and a statement that settles them would wait for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from enum import StrEnum

import psycopg

from pgrouse.client.call import run_async
from pgrouse.client.calls.processing.settle import completion_states
from pgrouse.client.message import Message, claim_refs
from pgrouse.handlers.runtime import AsyncPool
from pgrouse.process.backoff import FailureLog, backoff_s

# How long a transaction may take to end after its handler: a cancelled one is rolled back within milliseconds.
OPEN_S = 5.0
PAUSE_S = 0.02
ANSWER_TIMEOUT_S = 15.0
# One log for all messages: an outage is one event.
_failures = FailureLog("completion_check")


class CompletionState(StrEnum):
    """What happened to a message: see messages.completion_states."""

    SUCCESS = "success"
    HELD = "held"
    LOST = "lost"
    OPEN = "open"


async def find_states(pool: AsyncPool, messages: Sequence[Message]) -> dict[int, CompletionState]:
    """Return the states of messages by their ids.

    Waits for open transactions until OPEN_S are over or this is cancelled.
    """
    until = time.monotonic() + OPEN_S
    states = dict.fromkeys((message.id for message in messages), CompletionState.OPEN)
    try:
        while True:
            states = await _ask(pool, messages)
            if CompletionState.OPEN not in states.values() or time.monotonic() > until:
                return states
            await asyncio.sleep(PAUSE_S)
    except asyncio.CancelledError:
        return states


async def _ask(pool: AsyncPool, messages: Sequence[Message]) -> dict[int, CompletionState]:
    """Ask until the database answers."""
    failures = 0
    while True:
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S), pool.connection() as conn:
                states = await run_async(conn, completion_states(*claim_refs(messages)))
        except (psycopg.OperationalError, TimeoutError) as error:
            failures += 1
            _failures.failed(error)
        else:
            _failures.recovered()
            return {each.id: CompletionState(each.state) for each in states}
        await asyncio.sleep(backoff_s(failures))
