"""`pgrouse top` for tests: keys as input, lines of text as output."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from unittest.mock import patch

from textual.events import Paste
from textual.pilot import Pilot
from textual.widgets import Input

from pgrouse.cli.top import feed
from pgrouse.cli.top.app import Top
from pgrouse.client.connection.database import Database
from pgrouse.config import config

WITHIN_S = 60


class View:
    """A running view."""

    def __init__(self, app: Top, pilot: Pilot[Any]) -> None:
        self.app, self.pilot = app, pilot

    @property
    def lines(self) -> list[str]:
        """The text on the screen, without colours."""
        strips = self.app.screen._compositor.render_strips()
        return [strip.text.rstrip() for strip in strips]

    @property
    def text(self) -> str:
        """The same, with every row of blanks as one."""
        return " ".join(" ".join(self.lines).split())

    async def press(self, *keys: str) -> None:
        """Type keys."""
        await self.pilot.press(*keys)

    async def write(self, text: str) -> None:
        """Paste a text: after each key Textual waits until the process is idle."""
        field = await self.until(lambda: isinstance(it := self.app.screen.focused, Input) and it)
        field.post_message(Paste(text))
        await self.pilot.pause(0)

    async def until(self, condition: Callable[[], Any]) -> Any:
        """Wait until this is true.

        To draw the screen for each check takes longer than what is waited for: the checks become rarer.
        """
        began = time.monotonic()
        async with asyncio.timeout(WITHIN_S):
            while not (found := condition()):
                await self.pilot.pause(min(max((time.monotonic() - began) / 5, 0.02), 0.2))
        return found

    async def shows(self, *texts: str) -> None:
        """Wait until all this is on the screen."""
        try:
            await self.until(lambda: all(text in self.text for text in texts))
        except TimeoutError:
            raise AssertionError(f"{texts} never appeared on the screen:\n" + "\n".join(self.lines)) from None

    async def row(self, *words: str) -> list[str]:
        """Wait for a row that begins with these words; return its words."""

        def found() -> list[str] | None:
            rows = [line.split() for line in self.lines]
            return next((row for row in rows if row[: len(words)] == list(words)), None)

        row: list[str] = await self.until(found)
        return row


def watch(
    dsn: str, scenario: Callable[[View], Awaitable[None]], *, size: tuple[int, int] = (80, 24), every_s: float = 0.1
) -> None:
    """Run a view on this database, and a scenario with it."""

    async def run() -> None:
        db = Database(config.DatabaseSettings(dsn=dsn, connect_timeout=timedelta(seconds=2)), "test")
        app = Top(db, timedelta(seconds=every_s))
        async with app.run_test(size=size, notifications=True) as pilot:
            await scenario(View(app, pilot))
        app.feed.join(30)
        if app.failure is not None:
            raise app.failure

    # Neither a slow machine nor an outage makes it wait here.
    with patch.object(feed, "MAX_READ_SHARE", 0), patch.object(feed, "BACKOFF_FIRST_S", 0.05):
        asyncio.run(run())
