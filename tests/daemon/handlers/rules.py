"""Handlers with every kind of end, for the acknowledgement policies; and retry strategies."""

from __future__ import annotations

import os
from datetime import timedelta

from work import GATES, is_open, until_in_thread, write

from pgrouse import Reject, Retry


def end_in_thread(payload, ctx):
    write("start", ctx)
    for action in payload.get("actions", []):
        match action:
            case "ack":
                ctx.ack()
            case "ack with output":
                ctx.ack({"said": "by ack"})
            case "nack":
                ctx.nack(timedelta(0), state={"page": 3}, reason="not now")
            case "reject":
                ctx.reject("not a word of it is true")
    match payload.get("then"):
        case "raise":
            raise ZeroDivisionError("division by zero")
        case "raise Reject":
            raise Reject("not a word of it is true")
        case "raise Retry":
            raise Retry(timedelta(0))
        case "die":
            os.kill(os.getpid(), 9)
    return payload.get("then")


async def end(payload, ctx):
    return end_in_thread(payload, ctx)


end_in_process = end_in_thread


def without_context(payload):
    raise ZeroDivisionError("division by zero")


async def complete_again(payload, ctx):
    """Opens a transaction although the message already has an outcome or is completed."""
    if payload.get("nack"):
        ctx.nack()
    try:
        async with ctx.transaction() as conn:
            await conn.execute("SELECT 1")
    except RuntimeError as error:
        write("refused", ctx, error=str(error))
        raise


def hold_in_thread(payload, ctx):
    write("start", ctx, completed=ctx.completed, lost=ctx.lost)
    until_in_thread(lambda: is_open("gate"))
    write("end", ctx, completed=ctx.completed, lost=ctx.lost)


# Retry strategies.


def from_file(attempt, elapsed, error):
    """Evaluates the file `strategy` in the folder of the gates as the return value."""
    write("asked", attempt=attempt, elapsed=elapsed.total_seconds(), error=type(error).__name__)
    return eval(
        (GATES / "strategy").read_text(), {"timedelta": timedelta, "attempt": attempt}
    )  # the text is that of the test


def two_parameters(attempt, elapsed):
    return 0


async def a_coroutine(attempt, elapsed, error):
    return 0


not_a_function = 5
