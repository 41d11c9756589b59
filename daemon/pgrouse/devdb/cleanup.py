"""Removing every private database of this user: `python -m pgrouse.devdb.cleanup`."""

from __future__ import annotations

import shutil
from pathlib import Path

from pgrouse.devdb import container, postmaster, scratch

from pgrouse.devdb import os_user as account


def remove_all() -> None:
    """Stop and delete all private servers and containers, with all that lies beside them, but for those of sessions that are running."""
    scratch.Scratch("test").remove()
    for data in account.cache_folder().glob("*/data"):
        postmaster.end(data, postmaster.IMMEDIATE)
        account.delete(data.parent)
    for folder in filter(None, [account.cache_folder(), account.memory_folder()]):
        _empty(folder)
    if container.why_not() is None:
        container.remove_all()


def _empty(folder: Path) -> None:
    for each in folder.iterdir():
        if each.is_dir() and not any(each.glob(f"*/{scratch.OWNER}")):
            shutil.rmtree(each, ignore_errors=True)


if __name__ == "__main__":
    remove_all()
