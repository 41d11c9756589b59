"""The findings of the doctor."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """The level of a finding."""

    OK = "ok"
    """No problem, or a state that was chosen, such as a pause."""
    WARN = "warn"
    """It is costly, or will fail later; or it could not be checked."""
    FAIL = "fail"
    """Work is not done, or a guarantee does not hold."""


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
        code: what was checked, for programs.
        level: ok, warn or fail.
        what: the state, in words.
        fix: the statement, setting or command that fixes it; None if there is nothing to fix.
        detail: more lines about it; mostly empty.
    """

    code: str
    level: Level
    what: str
    fix: str | None = None
    detail: str = ""


def ok(code: str, what: str) -> Finding:
    """Return a finding without a problem."""
    return Finding(code, Level.OK, what)


def warn(code: str, what: str, fix: str, detail: str = "") -> Finding:
    """Return a warning."""
    return Finding(code, Level.WARN, what, fix, detail)


def fail(code: str, what: str, fix: str, detail: str = "") -> Finding:
    """Return a failure."""
    return Finding(code, Level.FAIL, what, fix, detail)
