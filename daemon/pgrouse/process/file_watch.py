"""Watches the files of handlers during development, so that a change of one restarts the daemon (`pgrouse run --reload`)."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import structlog

from pgrouse import events
from pgrouse.errors import ConfigError

log = structlog.get_logger()

# How often to look whether the process takes SIGHUP already.
SIGNAL_CHECK_S = 0.05


def check_installed() -> None:
    """Make sure that files can be watched.

    Raises:
        ConfigError: the package is missing.
    """
    if find_spec("watchfiles") is None:
        raise ConfigError("--reload needs watchfiles: pip install 'pgrouse[dev]'")


def send_sighup_on_change(paths: list[Path]) -> None:
    """From now on, send this process a SIGHUP when a file of Python or TOML in these folders changes, or one of these files."""
    # One that came before the process can take it would end the process.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    threading.Thread(target=_watch, args=[paths], name="file watch", daemon=True).start()


def wait_for_change(paths: list[Path]) -> None:
    """Return when such a file changes."""
    next(_changes(paths))


def _watch(paths: list[Path]) -> None:
    while signal.getsignal(signal.SIGHUP) in (signal.SIG_IGN, signal.SIG_DFL):
        time.sleep(SIGNAL_CHECK_S)
    for changed in _changes(paths):
        log.info(events.FILES_CHANGED, files=changed)
        os.kill(os.getpid(), signal.SIGHUP)


def _changes(paths: list[Path]) -> Iterator[list[str]]:
    from watchfiles import PythonFilter, watch  # noqa: PLC0415 - extra dev

    existing = [path for path in paths if path.exists()]
    for changes in watch(*existing, watch_filter=PythonFilter(extra_extensions=(".toml",)), raise_interrupt=True):
        yield sorted({path for _, path in changes})
