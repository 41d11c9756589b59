"""Waiting for a condition."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(condition: Callable[[], T], within_s: float = 60, every_s: float = 0.02) -> T:
    """Call `condition` until it returns something true, and return that.

    A failed `assert` in it counts as "not yet"; the last one is raised when the time is over.
    """
    deadline = time.monotonic() + within_s
    while True:
        last_try = time.monotonic() > deadline
        try:
            if found := condition():
                return found
        except AssertionError:
            if last_try:
                raise
        if last_try:
            raise AssertionError(f"still not so after {within_s} s: {condition!r} returned {found!r}")
        time.sleep(every_s)
