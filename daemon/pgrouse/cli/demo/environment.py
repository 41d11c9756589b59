"""The environment of the demo: a PostgreSQL server with the schema and the tables of the examples."""

from __future__ import annotations

import os
import time
from importlib.resources import files
from pathlib import Path
from typing import Any, Self

import psycopg

from pgrouse import devdb
from pgrouse.cli.demo.screen import Screen
from pgrouse.database import session_settings
from pgrouse.database.install import schema
from pgrouse.errors import ExitCode, PgrouseError

NAME = "demo"
MARK = "made by pgrouse demo"
REMOVE = "DROP SCHEMA IF EXISTS demo, messages CASCADE"
SCHEMAS = "SELECT n.nspname FROM pg_namespace AS n WHERE n.nspname IN ('demo', 'messages') ORDER BY n.nspname DESC"


class DatabaseInUse(PgrouseError):
    """The database has a queue that the demo did not create."""

    exit_code = ExitCode.USAGE


def examples() -> Path:
    """Return the folder with the handlers, `pgrouse.toml` and `schema.sql`.

    It is that of an installed wheel, or of the checkout.
    """
    packaged = Path(str(files("pgrouse"))) / "examples"
    return packaged if packaged.is_dir() else Path(__file__).parents[4] / "examples"


class DemoEnvironment:
    """A server, private unless the user named one.

    Args:
        dsn: a database that the user named; at the end the demo removes everything that it put there.
    """

    def __init__(self, dsn: str | None, screen: Screen) -> None:
        self.is_private = dsn is None
        self.screen = screen
        if self.is_private:
            _forget_libpq()
        self.server = devdb.find(NAME, dsn, say=lambda text: screen.tell("database", text))

    @property
    def dsn(self) -> str:
        """The connection string of the database."""
        return self.server.dsn()

    def __enter__(self) -> Self:
        """Start the server and say which one it is.

        Raises:
            DatabaseUnreachable: no server is available.
        """
        self.server.start()
        self.screen.tell("database", str(self.server))
        return self

    def __exit__(self, *_: object) -> None:
        self.clear_away()

    def clear_away(self) -> None:
        """Stop the private server; remove the demo's objects from a database that the user named."""
        if not self.is_private:
            self._uninstall()
        self.server.stop()

    def connect(self) -> psycopg.Connection[Any]:
        """Open an autocommit connection."""
        return session_settings.set_up(psycopg.connect(self.dsn, autocommit=True, application_name="pgrouse demo"))

    def install(self) -> None:
        """Install the schema and the tables of the examples, new and empty.

        Raises:
            DatabaseInUse: there is a queue that an earlier demo did not create.
        """
        began = time.monotonic()
        with self.connect() as conn, conn.transaction():
            conn.execute("SET LOCAL client_min_messages = warning")
            _remove_old_schemas(conn)
            schema.migrate(conn)
            conn.execute((examples() / "schema.sql").read_bytes())
            conn.execute(f"COMMENT ON SCHEMA demo IS '{MARK}'".encode())
        self.screen.tell("schema", f"installed in {time.monotonic() - began:.1f} s")

    def _uninstall(self) -> None:
        with self.connect() as conn, conn.transaction():
            conn.execute("SET LOCAL client_min_messages = warning")
            if _is_ours(conn):
                conn.execute(REMOVE)


def _remove_old_schemas(conn: psycopg.Connection[Any]) -> None:
    """Remove the schemas of an earlier demo."""
    if _is_ours(conn):
        conn.execute(REMOVE)
    taken = [name for (name,) in conn.execute(SCHEMAS)]
    if taken:
        raise DatabaseInUse(
            f"database {conn.info.dbname} has a schema `{taken[0]}` that the demo did not make:"
            " name a database that has none (`createdb pgrouse_demo`)"
        )


def _is_ours(conn: psycopg.Connection[Any]) -> bool:
    return conn.execute("SELECT obj_description(to_regnamespace('demo'), 'pg_namespace')").fetchone() == (MARK,)


def _forget_libpq() -> None:
    """Unset PGHOST, PGSERVICE, PGOPTIONS and the like.

    They are about another server, and the daemons would inherit them.
    """
    for name in [name for name in os.environ if name.startswith("PG")]:
        del os.environ[name]
