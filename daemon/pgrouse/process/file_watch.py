"""Watches the files of handlers during development.

A change of one restarts the daemon (`pgrouse run --reload`).
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

from pgrouse.errors import ConfigError
from pgrouse.logging import events
from pgrouse.logging.event_logger import log
from pgrouse.process import stop_signals

Changes: TypeAlias = Iterator[set[str]]

# How often to look for changes.
CHECK_MS = 50


def check_installed() -> None:
    """Check that files can be watched.

    Raises:
        ConfigError: the package is missing.
    """
    if find_spec("watchfiles") is None:
        raise ConfigError("--reload needs watchfiles: pip install 'pgrouse[dev]'")


class FileWatch:
    """Sends this process a SIGHUP when a file changes. A signal that comes before the process can reload is kept.

    A change is seen once the constructor has returned, so create the object before the files are read.

    Args:
        folders: watched for changes of Python and TOML files, including their subfolders.
        file: also watched.
    """

    def __init__(self, folders: list[Path], file: Path | None) -> None:
        stop_signals.take()
        self._has_change = threading.Event()
        folders = [folder.resolve() for folder in folders if folder.is_dir()]
        if folders:
            self._follow(_changes(folders, _is_source))
        if file is not None and not any(file.resolve().is_relative_to(folder) for folder in folders):
            # Watch its folder: a watch of the file ends when an editor replaces the file.
            self._follow(_changes([file.resolve().parent], lambda path: path.name == file.name, recursive=False))

    def wait(self) -> None:
        """Return when a file has changed since the watch began."""
        self._has_change.wait()

    def _follow(self, changes: Changes) -> None:
        next(changes)  # this sets up the watch
        threading.Thread(target=self._report, args=[changes], name="file watch", daemon=True).start()

    def _report(self, changes: Changes) -> None:
        for changed in changes:
            if changed:
                log.info(events.FILES_CHANGED, files=sorted(changed))
                self._has_change.set()
                os.kill(os.getpid(), signal.SIGHUP)


def _is_source(path: Path) -> bool:
    return path.suffix in (".py", ".toml")


def _changes(folders: list[Path], counts: Callable[[Path], bool], *, recursive: bool = True) -> Changes:
    """Yield the changed files, or an empty set if there were none for CHECK_MS.

    The first item comes when the watch is set up.
    """
    from watchfiles import DefaultFilter, watch  # noqa: PLC0415 - extra dev

    is_of_project = DefaultFilter()
    # Filter here: `watch` with a filter yields nothing while a file that does not count is written continuously, such
    # as a log.
    for changes in watch(
        *folders,
        watch_filter=None,
        recursive=recursive,
        step=CHECK_MS,
        rust_timeout=CHECK_MS,
        yield_on_timeout=True,
        raise_interrupt=True,
    ):
        yield {path for change, path in changes if counts(Path(path)) and is_of_project(change, path)}
