"""Folders that live as long as their process, and the cleanup of folders whose process was killed."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from pgrouse.devdb import os_user, postmaster

OWNER = "owner"


class Scratch:
    """A folder of this process for private servers.

    The process holds a lock on a file in it, which the kernel releases however the process ends: a folder with a free
    lock has no owner. Process ids would not work, because they are reused. Creating a folder removes those of the same
    kind without an owner.

    Args:
        kind: the purpose of the folder.
        in_memory: prefer a folder in memory, for data that need not survive a power cut.
    """

    def __init__(self, kind: str, *, in_memory: bool = False) -> None:
        with _one_at_a_time(kind):
            self.abandoned = _clear_away_abandoned(kind)
            place = (os_user.memory_folder() if in_memory else None) or os_user.cache_folder()
            parent = os_user.own_folder(place / kind, mode=0o755)
            self.folder = Path(tempfile.mkdtemp(prefix="", dir=parent))
            self._owner = (self.folder / OWNER).open("w")
            fcntl.flock(self._owner, fcntl.LOCK_EX)
        self.folder.chmod(0o711)  # the server's user must be able to reach its own folders

    def remove(self) -> None:
        """Delete the folder. Everything that runs in it must have been stopped."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self._owner.close()


@contextmanager
def _one_at_a_time(kind: str) -> Iterator[None]:
    """Hold a lock, so that a folder that was created but is not locked yet does not look abandoned."""
    with (os_user.cache_folder() / f"{kind}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _clear_away_abandoned(kind: str) -> list[str]:
    """Stop the servers in folders whose process is gone, delete the folders, and return their names."""
    places = filter(None, [os_user.cache_folder(), os_user.memory_folder()])
    return [folder.name for place in places for folder in (place / kind).glob("*") if _clear_away(folder)]


def _clear_away(folder: Path) -> bool:
    with (folder / OWNER).open("a") as owner:
        if not _free(owner):
            return False
        for data in folder.glob("*/data"):
            postmaster.end(data, postmaster.IMMEDIATE)
            os_user.delete(data.parent)
        shutil.rmtree(folder, ignore_errors=True)
        return True


def _free(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
