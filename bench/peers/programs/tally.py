"""The handler of every program: it counts the numbers that it receives, and records when."""

from __future__ import annotations

import os
import time


class Tally:
    """The handler of a drain: records the first and the last number, and each number that comes again.

    Args:
        file: the file for the records, with a line `what nanoseconds` of CLOCK_MONOTONIC for each.
        messages: how many numbers there are, from 1.
    """

    def __init__(self, file: str, messages: int) -> None:
        self._file = file
        self._seen = bytearray(messages + 1)
        self._messages = self._missing = messages

    def __call__(self, n: int) -> None:
        if self._seen[n]:
            mark(self._file, f"again-{n}")
            return
        self._seen[n] = 1
        if self._missing == self._messages:
            mark(self._file, "first")
        self._missing -= 1
        if not self._missing:
            mark(self._file, "last")


class Starts:
    """The handler of a latency measurement: records each number.

    Args:
        file: the file for the records.
    """

    def __init__(self, file: str) -> None:
        self._file = file

    def __call__(self, n: int) -> None:
        mark(self._file, str(n))


def handler() -> Tally | Starts:
    """Return the handler that the environment names."""
    file = os.environ["PGROUSE_BENCH_MARKS"]
    messages = int(os.environ.get("PGROUSE_BENCH_MESSAGES", "0"))
    return Tally(file, messages) if messages else Starts(file)


_opened: dict[str, int] = {}


def mark(file: str, what: str) -> None:
    """Append one line to the file."""
    at = time.monotonic_ns()
    if file not in _opened:
        _opened[file] = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(_opened[file], f"{what} {at}\n".encode())
