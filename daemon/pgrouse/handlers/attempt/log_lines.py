"""The log lines of the attempt that runs, where its topic keeps them (`log_bytes`).

They belong to the context of the attempt: tasks that a handler starts, and threads that get a copy of its context,
add to them too.
"""

from __future__ import annotations

from collections import deque
from contextvars import ContextVar
from threading import RLock
from typing import Final

CUT: Final = "\N{HORIZONTAL ELLIPSIS}"


class LogLines:
    """The last log lines of one attempt. Thread-safe.

    Args:
        limit_bytes: how many bytes of UTF-8 are kept, the last ones.

    Attributes:
        owner: what captures them: one worker of this process.
    """

    __slots__ = ("_is_closed", "_left_out", "_limit", "_lines", "_lock", "_size", "owner")

    def __init__(self, limit_bytes: int, owner: object) -> None:
        self.owner = owner
        self._limit = limit_bytes
        self._lines: deque[bytes] = deque()
        self._size = self._left_out = 0
        self._is_closed = False
        # The garbage collector may call what logs while this thread holds the lock.
        self._lock = RLock()

    def add(self, line: str) -> None:
        """Add a line, which may have lines below it; of one that is too long its end is kept."""
        data = line.encode("utf-8", "backslashreplace")
        if len(data) > self._limit:
            end = data[len(data) - self._limit + len(CUT.encode()) :]
            data = (CUT + end.decode("utf-8", "ignore")).encode()
        with self._lock:
            if not self._is_closed:
                self._append(data)

    def _append(self, data: bytes) -> None:
        self._lines.append(data)
        self._size += len(data) + 1
        while self._size > self._limit + 1:
            self._size -= len(self._lines.popleft()) + 1
            self._left_out += 1

    def add_of_child(self, text: str, left_out: int) -> None:
        """Add what the child process of this attempt has captured."""
        with self._lock:
            self._left_out += left_out
        self.add(text)

    def close(self) -> tuple[str, int] | None:
        """Return the lines, and how many before them are left out; None = there are none. What comes later is lost."""
        with self._lock:
            self._is_closed = True
            lines, self._lines = self._lines, deque()
        return (b"\n".join(lines).decode(), self._left_out) if lines else None


_lines: Final[ContextVar[LogLines | None]] = ContextVar("pgrouse_log_lines", default=None)

# Call these in the context of the attempt.
set_lines: Final = _lines.set
current_lines: Final = _lines.get
