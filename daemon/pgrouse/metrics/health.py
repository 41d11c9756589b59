"""The health of a process as the endpoint shows it: checks, and whether the event loop responds."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """The result of one check.

    Attributes:
        detail: what was found, in words.
    """

    name: str
    ok: bool
    detail: str


class LoopMonitor:
    """Measures whether an event loop responds: another thread asks, and the loop answers when it gets to it."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_asked_at: float | None = None

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the loop to ask."""
        self._loop = loop

    def ask(self) -> None:
        """Ask the loop, unless an answer is outstanding."""
        if self._loop is None or self._loop_asked_at is not None:
            return
        self._loop_asked_at = time.monotonic()
        with suppress(RuntimeError):  # the loop is closed: the process is about to end
            self._loop.call_soon_threadsafe(self._on_loop_answer)

    def _on_loop_answer(self) -> None:
        self._loop_asked_at = None

    @property
    def lag_s(self) -> float:
        """For how long an answer has been outstanding, in seconds; 0 if none is."""
        asked_at = self._loop_asked_at
        return 0.0 if asked_at is None else time.monotonic() - asked_at


class Health(Protocol):
    """What the endpoint asks of a process, on its own threads."""

    loop_monitor: LoopMonitor

    def live(self) -> list[HealthCheck]:
        """Return the checks whose failure only a new process can fix."""

    def ready(self) -> list[HealthCheck]:
        """Return the checks that must pass for the process to do its work."""
