"""Tells whether code runs on an event loop, and provides an awaitable for calls that are done already."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Final


class Done:
    """An awaitable whose result is there already."""

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


DONE: Final = Done()


def is_on_event_loop() -> bool:
    """Whether this is called on an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
