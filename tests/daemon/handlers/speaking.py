"""Handlers that log as libraries do, and fail."""

from __future__ import annotations

import asyncio
import logging
import threading
import time

import structlog
from work import write

logger = logging.getLogger("shop.library")


def _say():
    logger.warning("said")
    structlog.get_logger().warning("said.by_structlog")


def in_thread(payload):
    _say()


in_process = in_thread


async def on_the_loop(payload):
    await asyncio.sleep(0.01)  # other handlers run at this time
    _say()
    await asyncio.to_thread(_say)
    await asyncio.create_task(_say_later())


async def _say_later():
    _say()


def batch(payloads: list):
    _say()


def fail(payload):
    _look_up({"present": 1}, "missing")


async def fail_on_the_loop(payload):
    _look_up({"present": 1}, "missing")


fail_in_process = fail


def _look_up(found, key):
    return found[key]


async def block(payload):
    time.sleep(60)  # noqa: ASYNC251 - what a handler must not do


async def hold(payload):
    write("start")
    await asyncio.sleep(3600)


def quiet(payload):
    threading.Event().wait(0.01)


def fail_at_length(_payload):
    raise OSError("the disk is full\nFor more information see the manual")
