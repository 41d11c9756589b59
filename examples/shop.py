"""A shop for demonstration: handlers that are fast, slow, or fail."""

from __future__ import annotations

import asyncio
import time
from typing import Any, NoReturn

WORK_S = 1.5


async def order_created(order: dict[str, Any]) -> dict[str, Any]:
    """Return at once. The return value of a handler is stored as the message's output."""
    return {"order": order.get("id"), "started_at": time.monotonic()}


async def send_mail(_mail: dict[str, Any]) -> NoReturn:
    """Fail, as if there were no mail server. The topic has three attempts; after the third the message is dead."""
    raise ConnectionError("the mail server does not answer")


async def render_invoice(_invoice: dict[str, Any]) -> None:
    """Run for a while. Repeating it does no harm, so the topic has two attempts."""
    await asyncio.sleep(WORK_S)


async def print_label(_label: dict[str, Any]) -> None:
    """Run for a while.

    A label must not be printed twice, so there is one attempt: if the worker dies, a person decides about the dead
    message.
    """
    await asyncio.sleep(WORK_S)
