"""The progress that handlers reported for the messages in flight.

The heartbeat writes it, about once per second and message at most.

Handlers report it from any thread and do not wait. The last value is written again with the settle, so the final
progress is never lost.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from pgrouse.client.message import Message

WRITE_EVERY_S = 1.0


@dataclass(slots=True)
class ProgressNote:
    """The last progress of one message.

    Attributes:
        text: the progress, as JSON.
        is_unwritten: whether it has still to be written.
        written_at: when it was last written, by the monotonic clock.
    """

    message: Message
    text: str
    is_unwritten: bool = True
    written_at: float = -WRITE_EVERY_S


class Progress:
    """The last progress of each message, by claim. Any thread may note it; one thread writes it.

    Args:
        wake: called when there is something to write at once.

    Attributes:
        notes: by id and claim.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self.wake = wake
        self.notes: dict[tuple[int, int], ProgressNote] = {}

    def note(self, message: Message, text: str) -> None:
        """Remember the progress of a message."""
        note = self.notes.setdefault((message.id, message.claim_id), ProgressNote(message, text))
        note.text = text
        note.is_unwritten = True
        if time.monotonic() - note.written_at >= WRITE_EVERY_S:
            self.wake()

    def due(self, now: float) -> list[ProgressNote]:
        """Return what should be written now, and count it as written."""
        due = [
            note for note in list(self.notes.values()) if note.is_unwritten and now - note.written_at >= WRITE_EVERY_S
        ]
        for note in due:
            # Before the write: progress that is noted during the write must be written again.
            note.is_unwritten, note.written_at = False, now
        return due

    def put_back(self, notes: list[ProgressNote]) -> None:
        """Note that these were not written: they are due again later."""
        for note in notes:
            note.is_unwritten = True

    def pause_s(self, now: float) -> float:
        """Return how long nothing will be due."""
        return min(
            (note.written_at + WRITE_EVERY_S - now for note in list(self.notes.values()) if note.is_unwritten),
            default=math.inf,
        )

    def last(self, message: Message) -> str | None:
        """Return the last progress of a message."""
        note = self.notes.get((message.id, message.claim_id))
        return None if note is None else note.text

    def forget(self, message: Message) -> None:
        """Forget a message that is settled, or whose lock was lost."""
        self.notes.pop((message.id, message.claim_id), None)
