"""Handlers that fail with something large in their frames, or tell how much of that is still there.

Nothing collects cycles here.
"""

from __future__ import annotations

import asyncio
import gc
from typing import Any
from weakref import ref

from pydantic import BaseModel, field_validator

from pgrouse import AsyncContext, Context, Failure

gc.disable()

TELL = "tell"


class Large:
    """Something that a frame holds."""


_held: list[ref[Large]] = []


def _hold() -> Large:
    large = Large()
    _held.append(ref(large))
    return large


def _still_there() -> dict[str, int]:
    """Tell what was held, and how much of it is still there; what is not is not told again."""
    left = [each for each in _held if each() is not None]
    told = {"held": len(_held), "still there": len(left)}
    _held[:] = left
    return told


async def at_once(payload: str) -> Any:
    if payload == TELL:
        return _still_there()
    large = _hold()
    raise ValueError(large)


async def after_a_wait(payload: str) -> Any:
    if payload == TELL:
        return _still_there()
    large = _hold()
    await asyncio.sleep(0)
    raise ValueError(large)


async def exits(payload: str) -> Any:
    if payload == TELL:
        return _still_there()
    large = _hold()
    await asyncio.sleep(0)
    raise SystemExit(large)


async def until_its_timeout(payload: str) -> Any:
    if payload == TELL:
        return _still_there()
    large = _hold()
    await asyncio.sleep(3600)
    return str(large)


def in_thread(payload: str) -> Any:
    if payload == TELL:
        return _still_there()
    large = _hold()
    raise ValueError(large)


async def batch(payloads: list[str]) -> Any:
    if TELL in payloads:
        return [_still_there() for _ in payloads]
    large = _hold()
    await asyncio.sleep(0)
    raise ValueError(large)


def batch_in_thread(payloads: list[str]) -> Any:
    if TELL in payloads:
        return [_still_there() for _ in payloads]
    large = _hold()
    raise ValueError(large)


class Checked(BaseModel):
    """A payload whose check fails with something large in its frame."""

    text: str

    @field_validator("text")
    @classmethod
    def check(cls, text: str) -> str:
        if text != TELL:
            large = _hold()
            raise KeyError(large)
        return text


def checked_batch(payloads: list[Checked]) -> Any:
    return [_still_there() for _ in payloads]


async def checked(payload: Checked) -> Any:
    return _still_there()


async def in_step(payload: str, ctx: AsyncContext) -> Any:
    if payload == TELL:
        return _still_there()
    return await ctx.step("one", after_a_wait, payload)


def in_step_of_thread(payload: str, ctx: Context) -> Any:
    if payload == TELL:
        return _still_there()
    return ctx.step("one", in_thread, payload)


async def in_transaction(payload: str, ctx: AsyncContext) -> Any:
    async with ctx.transaction():
        if payload == TELL:
            ctx.output = _still_there()
            return
        large = _hold()
        await asyncio.sleep(0)
        raise ValueError(large)


async def around(ctx: AsyncContext, call_next: Any) -> Any:
    return await call_next()


def around_in_thread(ctx: Context, call_next: Any) -> Any:
    return call_next()


def hook(failure: Failure) -> None:
    assert failure.exception is None or str(failure.exception)


async def failing_hook(failure: Failure) -> None:
    raise RuntimeError(failure.exception)
