"""Connections of Django in handlers: Django keeps one for each thread, and drops those that broke only where a request begins and ends.

A handler is no request. Nothing here imports Django: where no handler has, there is nothing to do.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


@contextmanager
def as_in_a_request() -> Iterator[None]:
    """Drop this thread's broken and outworn connections before and after what is done inside, as Django does around a request."""
    _close_old()
    try:
        yield
    finally:
        _close_old()


def after_a_coroutine() -> None:
    """Let those be dropped that broke in the one thread where Django does the work of coroutines.

    That thread does one thing after the other, so that this comes before whatever a later handler does there, and nobody waits for it.
    Others may be in the middle of a result there: what is only outworn stays.
    """
    asgiref: Any = sys.modules.get("asgiref.sync")
    if "django.db" in sys.modules and asgiref is not None:
        with suppress(Exception):  # the interpreter ends, or another asgiref
            asgiref.SyncToAsync.single_thread_executor.submit(_close_broken)


def _close_old() -> None:
    for each in _connections():
        with suppress(Exception):  # it must not fail a handler that may not even use it
            each.close_if_unusable_or_obsolete()


def _close_broken() -> None:
    for each in _connections():
        if each.errors_occurred:
            with suppress(Exception):
                each.close_if_unusable_or_obsolete()


def _connections() -> list[Any]:
    """Return the connections that this thread has."""
    django: Any = sys.modules.get("django.db")
    if django is None:
        return []
    with suppress(Exception):  # it is being imported, or its settings are not made yet
        return list(django.connections.all(initialized_only=True))
    return []
