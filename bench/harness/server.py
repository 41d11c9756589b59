"""The server of a run of the harness: private, with the settings of the harness, at a port of this machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bench.postgres import free_port, installation

from pgrouse import devdb
from pgrouse.devdb.scratch import Scratch


class Server:
    """Stands in for the container in which the harness would run PostgreSQL.

    Args:
        conf: the `postgresql.conf` of the harness.
    """

    def __init__(self, conf: Path) -> None:
        self.port = free_port()
        self._scratch = Scratch("bench")
        self._server = devdb.PrivateServer(
            replace(installation(), pg_cron=None),
            self._scratch.folder / "server",
            database="bench",
            settings=_settings(conf),
            port=self.port,
        )

    @property
    def password(self) -> str:
        """The password of the user `postgres` at the port."""
        return (self._server.folder / "password").read_text()

    def dsn(self, database: str) -> str:
        """Return a connection string for a database."""
        return self._server.dsn(database)

    def start(self) -> None:
        """Start it; create it first if it was removed."""
        self._server.start()

    def stop(self) -> None:
        """Stop it, and keep its data."""
        self._server.stop()

    def clear(self) -> None:
        """Stop it, and delete its data."""
        self._server.remove()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()
        self._scratch.remove()


def _settings(conf: Path) -> dict[str, str]:
    """Return the settings of a configuration file; where it listens is not for the file to say."""
    lines = (line.partition("#")[0].partition("=") for line in conf.read_text().splitlines())
    found = {name.strip(): value.strip().strip("'") for name, separator, value in lines if separator}
    return {name: value for name, value in found.items() if name != "listen_addresses"}
