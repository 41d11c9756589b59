"""The life of messages through all faces of the queue, in a database with any settings."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from psycopg import sql

from pgrouse import AsyncClient, Client, NewMessage, publish, publish_many, wait_for
from pyspark_pgrouse.connection import connection
from tests.api.site import Site
from tests.cli.shell import Shell
from tests.daemon.process import Daemon, Fleet
from tests.drivers.callers import for_asyncpg
from tests.server.deadline import eventually
from tests.server.postgres import Database

TOPICS = {
    "echo": "life:echo",
    "again": {"handler": "life:again", "max_attempts": 3},
    "effect": {"handler": "life:effect", "max_attempts": 50},  # where transactions are serializable, some may fail
    "thread": "life:in_thread",
    "broken": {"handler": "life:broken", "max_attempts": 2},
    "limited": {
        "handler": "life:echo", "max_depth": 100, "dequeue_rate": 1000, "ordered": True, "key_ttl": "1h",
        "channel_min_interval": "10ms",
    },
    "batch": {"handler": "life:batch", "batch_size": 10},
    "tick": "life:echo",
}  # fmt: skip
SECTIONS = {
    'topics."effect".backoff': {"kind": "constant", "base": "100ms"},
    'topics."broken".backoff': {"kind": "constant", "base": "50ms"},
    'topics."broken".breaker': {"failure_rate": 1.0, "min_attempts": 1000, "window": "1h", "pause": "1s"},
    "schedules.often": {"topic": "tick", "cron": "1 SECOND", "payload": "tick"},
    "schedules.fridays": {"topic": "tick", "cron": "0 6 * JUL FRI", "payload": "friday", "jitter": "1m"},
}
TEXT = {"text": "äß 'it\\'s' \\ \"", "float": 0.1, "number": 12345678901234567890.5, "null": None}
# The counts and outputs when all of it has ended.
ENDED = {
    "again success": 1, "effect success": 1, "thread success": 1, "broken failed": 1, "limited success": 3,
    "batch success": 3,
    "echo success": 208, "again": '[true, {"at": 1.5}]', "effect": "0.1", "thread": "0.1",
}  # fmt: skip
COMMANDS = [
    "stats", "topic list", "topic show limited", "message list", "message list --json", "message show {dead}",
    "explain {dead}", "dead list",
    "dead group", "dead list --error BROKEN", "schedule list", "schedule show often", "subscription list",
    "worker list", "audit", "alert list",
    "alert conditions", "alert thresholds", "topic pause tick", "topic resume tick", "schedule run-now fridays",
    "maintenance run",
    "redrive --topic broken --dry-run", "redrive {dead}", "token add {token} --role viewer", "token list",
    "config check",
    "archive purge --older-than 3650d", "topic set limited max_depth=200", "migrate",
]  # fmt: skip
PAGES = [
    "/", "/messages", "/messages/{dead}", "/topics", "/topics/limited", "/workers", "/schedules", "/schedules/often",
    "/dead", "/audit",
    "/search?q=1", "/metrics", "/v1/messages", "/v1/messages/{dead}", "/v1/topics/limited", "/v1/dead",
    "/v1/dead/groups", "/v1/stats",
    "/v1/workers", "/v1/schedules", "/v1/audit",
]  # fmt: skip


def configure(database: Database, settings: Mapping[str, str]) -> None:
    """Let sessions in the database begin with these settings: every second one as a setting of the role there."""
    with database.server.admin() as conn:
        for nth, (name, value) in enumerate(settings.items()):
            whose = sql.SQL("ROLE postgres IN DATABASE {}" if nth % 2 else "DATABASE {}")
            # A list is not to become one name in quotes.
            given = sql.SQL(value) if name in ("search_path", "DateStyle") else sql.Literal(value)
            conn.execute(
                sql.SQL("ALTER {} SET {} = {}").format(
                    whose.format(sql.Identifier(database.name)),
                    sql.SQL(".").join(map(sql.Identifier, name.split("."))),
                    given,
                )
            )


class Life:
    """Messages of all kinds in one database, from the installation to the report.

    Attributes:
        published: the ids that clients got.
    """

    def __init__(self, database: Database, pgrouse: Shell, fleet: Fleet, folder: Path) -> None:
        self.database, self.pgrouse, self.fleet, self.folder = database, pgrouse, fleet, folder
        self.published: list[int] = []
        # Settings of the connections that stand for those of users.
        self.options: dict[str, Any] = {}

    def install(self) -> None:
        """Install the queue as a person does."""
        ended = self.pgrouse("migrate")
        assert ended.code == 0, ended.err

    def launch(self) -> Daemon:
        """Start a daemon that has handlers, policies and schedules, and return at once."""
        arguments = ("--apply-policies",)
        return self.fleet.launch(
            TOPICS, dsn=self.database.dsn, sections=SECTIONS, arguments=arguments, maintenance_interval="1s"
        )

    def run(self) -> Daemon:
        """Start a daemon, and return when it has started."""
        daemon = self.launch()

        def starts() -> bool:
            if not daemon.alive:
                pytest.fail(f"the daemon has ended: {daemon.log.read_text()}")
            return bool(daemon.events("daemon.started"))

        eventually(starts)
        return daemon

    def publish(self, text: Any = TEXT) -> None:
        """Publish on connections of users, which keep the settings of the database."""
        with self.database.connect(**self.options) as conn:
            for topic in ("again", "effect", "thread", "broken"):
                self.published.append(publish(conn, topic, text))
            for nth in range(3):
                publish(conn, "limited", nth, channel="c", key=f"k{nth}", headers={"a": "é"}, ttl=timedelta(hours=1))
            publish(conn, "echo", body=b"\x00\xff\\", available_at=datetime.now(UTC), priority=1)
            publish_many(
                conn, [NewMessage(topic="batch", payload=nth, delay=timedelta(milliseconds=50)) for nth in range(3)]
            )
            publish_many(conn, [NewMessage(topic="echo", payload=nth) for nth in range(200)])
            first = publish(conn, "echo", text)
            last = publish(conn, "echo", text, after=[first])
            conn.execute("INSERT INTO messages.message (topic, payload) VALUES ('echo', '{}')")
            assert wait_for(conn, last, timeout=60).archived_at > datetime(2026, 1, 1, tzinfo=UTC)
        asyncio.run(self._publish_async(text))

    async def _publish_async(self, text: Any) -> None:
        conn = await asyncpg.connect(**for_asyncpg(self.database.dsn))
        try:
            await publish(conn, "echo", text, delay=timedelta(milliseconds=10), key="a")
        finally:
            await conn.close()
        async with AsyncClient(self.database.dsn) as queue:
            await queue.publish("echo", text)

    def finish(self, daemon: Daemon) -> dict[str, Any]:
        """Wait until everything has ended; return how many of each topic ended how, and the outputs of some topics."""
        with self.database.connect(client_encoding="utf8", options="-c statement_timeout=0 -c DateStyle=ISO") as conn:
            conn.execute("SET default_transaction_isolation = 'read committed'")
            waiting = "SELECT topic, attempts, locked_by FROM messages.message WHERE topic <> 'tick'"

            def ends() -> bool:
                if not daemon.alive:
                    pytest.fail(f"the daemon has ended: {daemon.log.read_text()}")
                assert conn.execute(waiting).fetchall() == [], daemon.log.read_text()[-3000:]
                return True

            eventually(ends, within_s=90)
            ticks = "SELECT count(*) FROM messages.message_archive WHERE topic = 'tick' AND result = 'success'"
            eventually(lambda: conn.execute(ticks).fetchone() > (0,))
            ended = dict(
                conn.execute(
                    "SELECT topic || ' ' || result, count(*) FROM messages.message_archive "
                    "WHERE topic <> 'tick' GROUP BY 1"
                ).fetchall()
            )
            outputs = dict(
                conn.execute(
                    "SELECT topic, output::text FROM messages.message_archive "
                    "WHERE topic IN ('again', 'effect', 'thread')"
                ).fetchall()
            )
        return ended | outputs

    def look(self) -> None:
        """Use the command line, the client, the web server and the pipeline."""
        places = {"dead": self.published[-1], "token": f"t{self.database.name}"}
        bad: dict[str, Any] = {}
        for command in COMMANDS:
            ended = self.pgrouse(*command.format(**places).split())
            bad |= {command: ended} if ended.code else {}
        assert not bad, bad
        with Client(self.database.dsn) as queue:
            assert queue.next_ticks("0 6 * * FRI", count=1)[0].isoweekday() == 5
        self._browse(places)
        with connection.connect(self.database.dsn) as conn:
            connection.check(conn, "message_archive", ["id"])
        (rows,) = connection.arrow(
            self.database.dsn, "SELECT count(*) AS ended, max(archived_at) AS at FROM messages.message_archive"
        )
        assert rows.to_pylist()[0]["ended"] > 200
        report = self.pgrouse("pipeline", "report", "--out", str(self.folder / "report"), "--since", "1h", "--json")
        assert report.code == 0, report.err
        assert report.object["dead"] >= 1

    def _browse(self, places: Mapping[str, Any]) -> None:
        site = Site(self.database)
        try:
            with site.client(site.token("operator", "publisher", "worker")) as http:
                answers = [http.get(page.format(**places)) for page in PAGES]
                answers += [
                    http.post("/v1/messages", json={"topic": "web", "payload": TEXT, "key": "k", "delay": "1s"}),
                    http.post("/v1/messages/batch", json={"messages": [{"topic": "web", "payload": 1}]}),
                    http.post("/v1/claim", json={"topics": ["web"], "wait": 1}),
                    http.patch("/v1/topics/web", json={"max_attempts": 7, "lock_duration": "90s"}),
                ]
        finally:
            site.stop()
        refused = [(a.request.url.path, a.text[:300]) for a in answers if a.status_code >= 400]
        assert not refused, refused

    def leave(self, daemon: Daemon) -> None:
        """Stop the daemon, and make sure that nothing failed that was not meant to."""
        assert daemon.stop() == 0
        meant = {"attempt.failed", "message.failed", "message.dead"}
        bad = [e for e in daemon.logged() if e.get("level") in ("warning", "error") and e["event"] not in meant]
        assert not bad, bad
