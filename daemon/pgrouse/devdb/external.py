"""A server that the user named: it is used unchanged, never stopped, never removed."""

from __future__ import annotations

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgrouse import session_settings
from pgrouse.config.dsn import redact
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
