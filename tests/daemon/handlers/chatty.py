"""Handlers that log what their payloads say, by the standard library and by structlog."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading

import structlog
from work import is_open, until, until_in_thread, write

from pgrouse import Reject

log = logging.getLogger("shop.orders")


def _say(payload):
    for text in payload.get("texts", []):
        log.info(text)
    if payload.get("odd"):
        log.info("n\x00l \ud800 \x1b[31m")
    for number in range(payload.get("times", 0)):
        log.info("line %s", number)
    if payload.get("by_structlog"):
        structlog.get_logger().warning("order.late", order=7, why="no stock")
    if payload.get("caught"):
        try:
            {}["inner"]
        except KeyError:
            log.exception("it went wrong")


def _end(payload, attempt):
    if attempt in payload.get("raises", []):
        raise RuntimeError(f"boom {attempt}")
    if payload.get("reject"):
        raise Reject("no")


def say_in_thread(payload, ctx):
    _say(payload)
    log.info("attempt %s", ctx.attempt)
    _end(payload, ctx.attempt)


async def say(payload, ctx):
    log.info("before")
    await asyncio.sleep(0)
    _say(payload)
    await asyncio.create_task(_in_task())
    log.info("attempt %s", ctx.attempt)
    _end(payload, ctx.attempt)


async def say_at_once(payload):
    """Takes nothing but the payload, and never waits."""
    log.info("at once %s", payload)


async def complete_itself(payload, ctx):
    async with ctx.transaction() as conn:
        log.info("inside")
        await conn.execute("SELECT 1")
    log.info("after")


async def _in_task():
    log.debug("not logged")
    log.info("in a task")


def say_late_in_thread(payload, ctx):
    """A thread of its own that logs in the context of the attempt, after the end of the attempt."""
    context = contextvars.copy_context()

    def late():
        until_in_thread(lambda: is_open("late"))
        context.run(log.info, "much too late")
        write("late", ctx)

    threading.Thread(target=late, daemon=True).start()
    log.info("in time")


async def hold(payload, ctx):
    log.info("holding, attempt %s", ctx.attempt)
    write("holds", ctx)
    await until(lambda: is_open("gate"))


say_in_process = say_in_thread
