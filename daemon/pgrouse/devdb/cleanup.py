"""Removes every private database of this user: `python -m pgrouse.devdb.cleanup`."""

from __future__ import annotations

import shutil
from pathlib import Path

from pgrouse.devdb import container, os_user, postmaster, scratch


def remove_all() -> None:
    """Stop and delete all private servers and containers with their files, except those of running sessions."""
    scratch.Scratch("test").remove()
    for folder in filter(None, [os_user.cache_folder(), os_user.memory_folder()]):
        for data in folder.glob("*/data"):
            postmaster.end(data, postmaster.IMMEDIATE)
            os_user.delete(data.parent)
        _empty(folder)
    if container.why_not() is None:
        container.remove_all()


def _empty(folder: Path) -> None:
    for each in folder.iterdir():
        if each.is_dir() and not any(each.glob(f"*/{scratch.OWNER}")):
            shutil.rmtree(each, ignore_errors=True)


if __name__ == "__main__":
    remove_all()
