"""Data of servers with the schema installed.

It is made once per run of the tests, and copied for each server of each of its processes.
"""

from __future__ import annotations

import fcntl
import re
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import date
from pathlib import Path

from pgrouse import devdb
from pgrouse.devdb import os_user
from tests.server.postgres import Postgres

DAY = "day"  # the file that says for which day a seed's schema was installed, written when it is complete


def plant(installation: devdb.Installation, server: devdb.PrivateServer, seeds: Path) -> date:
    """Give a server that has never started a copy of the seed for its binaries, made by the first that needs it.

    Return the day for which its template has the schema.
    """
    seed = seeds / re.sub(r"\W+", "-", str(installation))
    with _alone(seed):
        if not (seed / DAY).exists():
            _make(installation, server.database, seed)
    os_user.server_folder(server.folder)
    subprocess.run(["cp", "-a", seed / "data", seed / "password", server.folder], check=True)
    return date.fromisoformat((seed / DAY).read_text())


def _make(installation: devdb.Installation, database: str, seed: Path) -> None:
    server = devdb.PrivateServer(installation, seed, database=database, settings=devdb.FAST_UNSAFE_SETTINGS)
    server.start()
    with closing(Postgres("seed", server)) as postgres:
        day = postgres.migrated_today()
    server.stop()
    (seed / DAY).write_text(day.isoformat())


@contextmanager
def _alone(seed: Path) -> Iterator[None]:
    with seed.with_name(f"{seed.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
