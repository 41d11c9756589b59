"""What an examination finds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    """All is well, or as somebody decided it to be."""
    WARN = "warn"
    """It costs, or will fail; or it could not be examined."""
    FAIL = "fail"
    """Work is not done, or a promise does not hold."""


@dataclass(frozen=True)
class Finding:
    """What was found about one thing.

    Attributes:
        code: what was looked at, for programs: one of `CODES`.
        level: how bad it is.
        what: what is so, in words.
        mend: the statement, setting or command that mends it; None if nothing has to be.
        detail: more lines about it, for who wants to know; mostly empty.
    """

    code: str
    level: Level
    what: str
    mend: str | None = None
    detail: str = ""


def ok(code: str, what: str) -> Finding:
    """Return that something is well."""
    return Finding(code, Level.OK, what)


def warn(code: str, what: str, mend: str, detail: str = "") -> Finding:
    """Return that something costs, or will fail."""
    return Finding(code, Level.WARN, what, mend, detail)


def fail(code: str, what: str, mend: str, detail: str = "") -> Finding:
    """Return that something does not work."""
    return Finding(code, Level.FAIL, what, mend, detail)
