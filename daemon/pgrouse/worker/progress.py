"""How far the messages in hand are, as their handlers say it. The heartbeat's thread writes it, at most about once a second per message.

Handlers only note it, from any thread, and wait for nobody. What was noted last is written again with the settle, so that it never stays
behind.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pgrouse.client.message import Message

WRITE_EVERY_S = 1.0
UNIT_CHARS = 50


@dataclass(slots=True)
class Note:
    """What was noted last of one message.

    Attributes:
        text: the progress, as JSON.
        open: whether it is still to be written.
        written: when it was last written, by the monotonic clock.
    """

    message: Message
    text: str
    open: bool = True
    written: float = -WRITE_EVERY_S


class Progress:
    """The notes, by claim. Any thread may note; one thread writes.

    Args:
        wake: called when there is something to write at once.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self.wake = wake
        self._notes: dict[tuple[int, int], Note] = {}

    def __bool__(self) -> bool:
        return bool(self._notes)

    def note(self, message: Message, text: str) -> None:
        """Take in what a handler says."""
        note = self._notes.setdefault((message.id, message.claim_id), Note(message, text))
        note.text = text
        note.open = True
        if time.monotonic() - note.written >= WRITE_EVERY_S:
            self.wake()

    def due(self, now: float) -> list[Note]:
        """Return what is to be written now, and count it as written."""
        due = [note for note in list(self._notes.values()) if note.open and now - note.written >= WRITE_EVERY_S]
        for note in due:
            # Before it is written: what is noted meanwhile is open again.
            note.open, note.written = False, now
        return due

    def put_back(self, notes: list[Note]) -> None:
        """These could not be written: they are due again in a while."""
        for note in notes:
            note.open = True

    def pause_s(self, now: float) -> float:
        """Return how long nothing is due."""
        return min(
            (note.written + WRITE_EVERY_S - now for note in list(self._notes.values()) if note.open), default=math.inf
        )

    def last(self, message: Message) -> str | None:
        """Return what was noted last of a message."""
        note = self._notes.get((message.id, message.claim_id))
        return None if note is None else note.text

    def forget(self, message: Message) -> None:
        """The message is settled, or not this worker's any more."""
        self._notes.pop((message.id, message.claim_id), None)


def as_progress(done: Any, total: Any, unit: Any) -> str:
    """Return a progress as JSON.

    Raises:
        ValueError: a number is none, is negative or not finite; the unit is no short text.
    """
    said = {"done": _number("done", done)}
    if total is not None:
        said["total"] = _number("total", total)
    if unit is not None:
        said["unit"] = _unit(unit)
    return json.dumps(said, ensure_ascii=False)


def _number(name: str, value: Any) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= 1e18:  # noqa: PLR2004 - NaN fails too
        raise ValueError(f"ctx.progress({name}={value!r:.50}): use a number from 0 to 1e18")
    return value


def _unit(value: Any) -> str:
    if not isinstance(value, str) or not value.isprintable() or not 1 <= len(value) <= UNIT_CHARS:
        raise ValueError(f"ctx.progress(unit={value!r:.60}): use a word like 'rows', at most {UNIT_CHARS} characters")
    return value
