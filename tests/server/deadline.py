"""Waiting for a condition."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
# Without an interval of its own, a condition is checked after a tenth of the time that was waited so far, within these
# limits: each check asks a server or reads a file, and to ask fifty times a second costs as much as what is waited for.
SHORTEST_S, LONGEST_S = 0.01, 0.2


def eventually(condition: Callable[[], T], within_s: float = 60, every_s: float | None = None) -> T:
    """Call `condition` until it returns something true, and return that.

    A failed `assert` in it counts as "not yet"; the last one is raised when the time is over.
    """
    began = time.monotonic()
    while True:
        waited = time.monotonic() - began
        try:
            if found := condition():
                return found
        except AssertionError:
            if waited > within_s:
                raise
        if waited > within_s:
            raise AssertionError(f"still not so after {within_s} s: {condition!r} returned {found!r}")
        time.sleep(min(max(waited / 10, SHORTEST_S), LONGEST_S) if every_s is None else every_s)
