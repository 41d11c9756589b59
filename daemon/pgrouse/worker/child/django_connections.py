"""Django in handlers: its setup in child processes, and its connections.

Django keeps one per thread, and closes broken ones only at the start and end of a request.

A handler is not a request. This module does not import Django: if no handler has imported it, there is nothing to do.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

# The module that has the connections. While it is not imported, there are none.
DJANGO = "django.db"


def is_set_up() -> bool:
    """Return whether Django is set up here, by a settings module that another process can also import."""
    registry: Any = sys.modules.get("django.apps")
    return registry is not None and registry.apps.ready and "DJANGO_SETTINGS_MODULE" in os.environ


def set_up() -> None:
    """Set Django up."""
    importlib.import_module("django").setup()


def is_debugging() -> bool:
    """Return whether the settings of Django, if it is set up here, have DEBUG = True."""
    conf: Any = sys.modules.get("django.conf")
    return conf is not None and conf.settings.configured and bool(conf.settings.DEBUG)


@contextmanager
def fresh_connections() -> Iterator[None]:
    """Close this thread's broken and expired connections before and after the block, and forget their statements.

    Django does the same around a request.
    """
    _close_old()
    try:
        yield
    finally:
        _close_old()


def clean_up_after_coroutine() -> None:
    """Schedule the closing of broken connections in the one thread that runs Django's database work of coroutines.

    That thread makes one call at a time, so this runs before any later handler uses it. Expired connections stay open:
    another coroutine may still be reading a result.
    """
    asgiref: Any = sys.modules.get("asgiref.sync")
    if DJANGO in sys.modules and asgiref is not None:
        with suppress(Exception):  # the interpreter is shutting down, or asgiref has changed
            asgiref.SyncToAsync.single_thread_executor.submit(_close_broken)


def _close_old() -> None:
    for each in _connections():
        with suppress(Exception):  # a handler that does not use Django must not fail because of it
            each.close_if_unusable_or_obsolete()
            each.queries_log.clear()


def _close_broken() -> None:
    for each in _connections():
        if each.errors_occurred:
            with suppress(Exception):
                each.close_if_unusable_or_obsolete()


def _connections() -> list[Any]:
    """Return this thread's connections."""
    django: Any = sys.modules.get(DJANGO)
    if django is None:
        return []
    with suppress(Exception):  # it is being imported, or is not configured yet
        return list(django.connections.all(initialized_only=True))
    return []
