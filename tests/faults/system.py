"""The system under test: a server of its own, daemons and publishers.

Daemons reach the server through a proxy, publishers through another one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg

from tests.daemon.process import HANDLERS, Daemon, Fleet
from tests.daemon.proxy import Proxy
from tests.faults import intruders, witness
from tests.faults.breaks import Break
from tests.faults.remote import WebServer
from tests.faults.topics import SHORT_LOCK, TOPICS, WORKED
from tests.server.postgres import Database, Postgres
from tests.sql.queue import Queue

OWN_HANDLERS = Path(__file__).parent / "handlers"
WORKER = {
    "poll_interval": "1s", "degraded_poll_interval": "0.3s", "maintenance_interval": "0.3s", "shutdown_timeout": "1.5s",
    "concurrency": 40, "threads": 8,
}  # fmt: skip


class System:
    """Everything that a storm affects.

    Attributes:
        daemons: the daemons that should be alive, by slot.
        web: the web server, started only in runs without a daemon.
        ended: the daemons that were stopped or killed.
    """

    def __init__(self, database: Database, folder: Path) -> None:
        self.database = database
        self.fleet = Fleet(folder)
        self.journal = self.fleet.journal
        self.for_daemons, self.for_publishers = Proxy(database.dsn), Proxy(database.dsn)
        self.web = WebServer(folder, self.for_daemons.dsn)
        self.daemons: list[Daemon] = []
        self.ended: list[Daemon] = []

    @property
    def server(self) -> Postgres:
        """The server."""
        return self.database.server

    @contextmanager
    def queue(self) -> Iterator[Queue]:
        """The queue, by a direct connection of the superuser."""
        with psycopg.connect(self.database.dsn, autocommit=True, connect_timeout=10) as conn:
            yield Queue(conn)

    def launch(self) -> Daemon:
        """Start one more daemon."""
        return self.fleet.launch(
            WORKED,
            dsn=self.for_daemons.dsn,
            sections={"handlers": {"import_path": [str(OWN_HANDLERS), str(HANDLERS)]}},
            **WORKER,
        )

    def begin(self, daemons: int) -> None:
        """Start this many daemons."""
        self.daemons = [self.launch() for _ in range(daemons)]

    def replace(self, slot: int) -> None:
        """Start a new daemon in this slot, whose daemon has ended."""
        self.ended.append(self.daemons[slot])
        self.daemons[slot] = self.launch()

    def close(self) -> None:
        """Kill what still runs."""
        self.fleet.kill()
        self.web.close()
        for proxy in (self.for_daemons, self.for_publishers):
            with suppress(OSError):
                proxy.close()


def prepare(queue: Queue) -> None:
    """Install the witness and the policies."""
    for statement in witness.STATEMENTS:
        queue.conn.execute(statement)
    for name, topic in TOPICS.items():
        queue.policy(name, **(SHORT_LOCK | topic.settings))


@contextmanager
def system(server: Postgres, folder: Path, broken: Break | None = None) -> Iterator[System]:
    """Make a system on a server that may be stopped and crashed, and remove it.

    broken: how the queue is broken in it.
    """
    with server.new_database(template=server.migrated) as database:
        with server.admin() as admin:
            admin.execute(f"ALTER DATABASE {database.name} SET synchronous_commit = on")
            for statement in intruders.ROLES:
                admin.execute(statement.encode())
        made = System(database, folder)
        try:
            with made.queue() as queue:
                prepare(queue)
                if broken is not None:
                    broken.install(queue.conn)
            yield made
        finally:
            made.close()
            server.place.start()
