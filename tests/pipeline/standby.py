"""A standby of a private server, which replays what the server writes for as long as the test lets it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from pgrouse import devdb
from pgrouse.devdb import os_user
from pgrouse.devdb.scratch import Scratch
from tests.server.postgres import Postgres


@contextmanager
def standby_of(primary: Postgres) -> Iterator[devdb.PrivateServer]:
    """Copy the server, and run the copy as its standby."""
    source: devdb.PrivateServer = primary.place
    scratch = Scratch("standby")
    plain = replace(source.installation, pg_cron=None)  # its jobs are made by a statement that a standby refuses
    standby = devdb.PrivateServer(
        plain, scratch.folder / "server", database=source.database, settings=devdb.FAST_UNSAFE_SETTINGS
    )
    for folder in (standby.folder, standby.socket):
        os_user.server_folder(folder)
    copy = os_user.readable(source.installation).bindir / "pg_basebackup"
    subprocess.run(
        [copy, "-d", source.dsn("postgres"), "-D", standby.data, "--write-recovery-conf", "--checkpoint=fast"],
        check=True,
        cwd="/",
        **os_user.identity(),
    )
    try:
        standby.start()
        yield standby
    finally:
        standby.remove()
        scratch.remove()
