"""Removing every private database of this user: `python -m pgrouse.devdb.cleaning`."""

from __future__ import annotations

import shutil

from pgrouse.devdb import account, container, postmaster, scratch


def remove_all() -> None:
    """Stop and delete all private servers, containers and copies of binaries, but for those of test sessions that are running."""
    scratch.Scratch("test").remove()
    folder = account.cache_folder()
    for data in folder.glob("*/data"):
        postmaster.end(data, postmaster.IMMEDIATE)
        account.delete(data.parent)
    for copy in folder.glob("postgresql-*"):
        shutil.rmtree(copy, ignore_errors=True)
    if container.why_not() is None:
        container.remove_all()


if __name__ == "__main__":
    remove_all()
