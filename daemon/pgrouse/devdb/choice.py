"""Chooses the PostgreSQL server for the demo and the tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgrouse.config.dsn import redact
from pgrouse.database import session_settings
from pgrouse.devdb import container, installation, os_user
from pgrouse.devdb.container import Container
from pgrouse.devdb.installation import Installation
from pgrouse.devdb.server import PrivateServer
from pgrouse.errors import DatabaseUnreachable


class ExternalServer:
    """The server behind a connection string."""

    def __init__(self, dsn: str) -> None:
        self.database = str(conninfo_to_dict(dsn).get("dbname") or "")
        self.pg_cron: str | None = None
        self._dsn = dsn
        self._version = ""

    def __str__(self) -> str:
        cron = f"with pg_cron {self.pg_cron}" if self.pg_cron else "with no pg_cron in this database"
        return f"yours, PostgreSQL {self._version} {cron}" if self._version else f"yours, {redact(self._dsn)}"

    def dsn(self, dbname: str | None = None, user: str | None = None, **options: str) -> str:
        """Return the connection string, with the given options replaced."""
        other = {"dbname": dbname, "user": user, **options}
        return make_conninfo(self._dsn, **{name: value for name, value in other.items() if value})

    def start(self) -> bool:
        """Check that the database answers; return False: it ran already.

        DatabaseUnreachable: with libpq's reason.
            DatabaseUnreachable: with the reason that libpq gave.
        """
        try:
            with psycopg.connect(self._dsn, connect_timeout=10) as conn:
                self._version = (conn.info.parameter_status("server_version") or "").split(" ")[0]
                conn.execute(session_settings.LOCAL)
                found = conn.execute(
                    "SELECT e.extversion FROM pg_extension AS e WHERE e.extname = 'pg_cron'"
                ).fetchone()
        except psycopg.OperationalError as error:
            raise DatabaseUnreachable(f"{redact(self._dsn)} does not answer: {redact(str(error)).strip()}") from error
        self.pg_cron = found[0] if found else None
        return False

    def stop(self) -> None:
        """Do nothing."""

    def remove(self) -> None:
        """Do nothing."""


HOW_TO_INSTALL = """any one of these will do:
  apt-get install postgresql-15 postgresql-15-cron      (as root, on Debian 12; other systems: PostgreSQL 15 to 18)
  pip install 'pgrouse[testing]'                        (brings PostgreSQL in a wheel)
  pgrouse demo --dsn postgresql://user@host/database    (your own database)"""


class DatabaseServer(Protocol):
    """A PostgreSQL server, private or external. `str()` describes it.

    Attributes:
        database: the database to use; it exists once the server is started.
        pg_cron: the version of the pg_cron that keeps its jobs in this database; None without it. Known once the server
            is started.
    """

    database: str
    pg_cron: str | None

    def dsn(self, dbname: str | None = None, user: str = ..., **options: str) -> str:
        """Return a connection string, by default for `database`."""

    def start(self) -> bool:
        """Start the server and wait until it answers; return False if it ran already."""

    def stop(self) -> None:
        """Stop the server, keep its data."""

    def remove(self) -> None:
        """Stop the server and delete its data."""


def find(
    name: str,
    dsn: str | None = None,
    *,
    database: str = "pgrouse",
    settings: Mapping[str, str] | None = None,
    in_memory: bool = False,
    say: Callable[[str], object] = print,
) -> DatabaseServer:
    """Return the first server that is available.

    The order: the given one, local binaries with pg_cron, a container, the wheel, local binaries without pg_cron.

    Args:
        name: the purpose; the next call with this name gets the same data.
        dsn: a database that the user named.
        database: the name of the database, unless the user named one.
        settings: further settings of a server that is started.
        in_memory: keep its data in memory, if there is enough of it.
        say: called with one line that says why a container was not used.

    DatabaseUnreachable: none is available; the text says what to do.
        DatabaseUnreachable: none is available; says what to do.
    """
    if dsn:
        return ExternalServer(dsn)
    found = installation.local()
    if found and found[0].pg_cron:
        return _server(name, found[0], database, settings, in_memory)
    if _container_can_be_had(say):
        return Container(
            os_user.cache_folder(), name=f"pgrouse-{name}", database=database, settings=settings, in_memory=in_memory
        )
    if any_one := installation.embedded() or next(iter(found), None):
        return _server(name, any_one, database, settings, in_memory)
    raise DatabaseUnreachable(
        f"no PostgreSQL server was found on this machine ({container.why_not()}); {HOW_TO_INSTALL}"
    )


def _server(
    name: str, found: Installation, database: str, settings: Mapping[str, str] | None, in_memory: bool
) -> PrivateServer:
    place = (os_user.memory_folder() if in_memory else None) or os_user.cache_folder()
    return PrivateServer(found, place / f"{name}-{found.major}", database=database, settings=settings)


def _container_can_be_had(say: Callable[[str], object]) -> bool:
    if container.why_not():
        return False
    try:
        container.build()
    except DatabaseUnreachable as error:
        say(f"no container: {str(error).splitlines()[0]}")
        return False
    return True
