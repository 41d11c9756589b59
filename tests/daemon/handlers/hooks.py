"""Hooks that write the failures that they get, and handlers that fail in every way."""

from __future__ import annotations

import asyncio
import logging
import os
import time

from work import write

from pgrouse import Fail, Failure, Reject


def _write(what, failure: Failure):
    write(
        what,
        id=failure.message_id,
        topic=failure.topic,
        attempt=failure.attempt,
        outcome=failure.outcome,
        is_last=failure.is_last,
        exception=repr(failure.exception),
        error=failure.error.rstrip().rpartition("\n")[2],
    )


def on_failure(failure: Failure):
    _write("failure", failure)
    logging.getLogger("shop.hook").warning("hook")


async def on_death(failure: Failure):
    await asyncio.sleep(0)
    _write("death", failure)


def broken(failure: Failure):
    raise ConnectionError("no pager")


def needs_more(failure, more):
    return more


def slow(failure: Failure):
    time.sleep(0.5)
    _write("slow", failure)


async def fail(payload):
    raise KeyError(payload)


def fail_in_thread(payload):
    raise KeyError(payload)


fail_in_process = fail_in_thread


def die(payload):
    os._exit(7)


async def reject(payload):
    raise Reject("not today")


async def fail_for_good(payload):
    return Fail("never")


async def forever(payload):
    await asyncio.sleep(3600)


def typed(payload: int):
    return payload
