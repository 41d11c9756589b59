"""The steps of the tests of SQL functions: publish, claim, settle, read, advance the clock, listen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import namedtuple_row
from psycopg.types.json import Jsonb

from tests.server.deadline import eventually

Row = Any  # a named tuple whose fields are the columns of the statement


class Queue:
    """The queue through one connection."""

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self.conn = conn
        self.clock_is_stopped = False

    def rows(self, statement: str, values: Sequence[Any] | dict[str, Any] = ()) -> list[Row]:
        """Return all rows of a statement."""
        cursor = self.conn.cursor(row_factory=namedtuple_row)
        return cursor.execute(statement.encode(), values).fetchall()

    def row(self, statement: str, values: Sequence[Any] | dict[str, Any] = ()) -> Row:
        """Return the only row of a statement; None if it has none."""
        found = self.rows(statement, values)
        assert len(found) <= 1
        return found[0] if found else None

    def value(self, statement: str, values: Sequence[Any] | dict[str, Any] = ()) -> Any:
        """Return the only column of the only row."""
        (value,) = self.row(statement, values)
        return value

    def call(self, function: str, *arguments: Any, **named: Any) -> Any:
        """Return what `SELECT messages.<function>(…)` returns."""
        return self.value(*_call(function, arguments, named))

    def publish(self, topic: str = "t", **columns: Any) -> int:
        """Insert one message and return its id.

        `wait` (an interval) sets available_at that far from now; below zero: in the past.
        """
        (published,) = self.publish_many(1, topic, **columns)
        return published

    def publish_many(self, count: int, topic: str = "t", **columns: Any) -> list[int]:
        """Insert this many messages in one statement, with payloads 1, 2, …, and return their ids in this order."""
        # The default of available_at is the server's clock, which is ahead of a stopped clock.
        wait = columns.pop("wait", "0" if self.clock_is_stopped and "available_at" not in columns else None)
        if "payload" not in columns and "body" not in columns:
            columns["payload"] = sql.SQL("to_jsonb(n)")
        if wait is not None:
            columns["available_at"] = sql.SQL("messages.now() + {}::interval").format(wait)
        statement = sql.SQL(
            "INSERT INTO messages.message (topic, {}) SELECT {}, {} FROM generate_series(1, {}) AS n RETURNING id"
        ).format(
            sql.SQL(", ").join(map(sql.Identifier, columns)),
            topic,
            sql.SQL(", ").join(map(_expression, columns.values())),
            count,
        )
        return [published for (published,) in self.conn.execute(statement)]

    def send(self, payload: Any = 1, topic: str = "t", **named: Any) -> Row:
        """Call messages.publish and return what it returns: id and what."""
        statement, values = _call("publish", (topic, Jsonb(payload)), named)
        return self.row(statement.replace("SELECT", "SELECT * FROM", 1), values)

    def claim(self, *topics: str, worker: str = "w", limit: int = 100, **named: Any) -> list[Row]:
        """Claim from these topics (default: t) and return what was locked."""
        statement, values = _call("claim", (worker, list(topics or ["t"]), limit), named)
        return self.rows(statement.replace("SELECT", "SELECT * FROM", 1), values)

    def claim_with_next_due(
        self, *topics: str, worker: str = "w", limit: int = 100, **named: Any
    ) -> tuple[list[Row], Row]:
        """Claim from these topics (default: t); return the locked messages, and the last row.

        That row describes what the claim left.
        """
        statement, values = _call("claim_with_next_due", (worker, list(topics or ["t"]), limit), named)
        *claimed, left = self.rows(statement.replace("SELECT", "SELECT * FROM", 1), values)
        assert left.id is None
        return claimed, left

    def let_claim_ids(self, be: Callable[[int], bool], *, claims: int = 1) -> None:
        """Choose a seed with which the next claims on this connection draw numbers that meet the condition `be`."""
        for seed in range(1000):
            self.value("SELECT setseed(%s)", [seed / 1000])
            drawn = "SELECT 1 + floor(random() * 4503599627370496)::bigint AS claim_id FROM generate_series(1, %s)"
            if all(be(row.claim_id) for row in self.rows(drawn, [claims])):
                self.value("SELECT setseed(%s)", [seed / 1000])
                return
        raise AssertionError("no seed draws numbers like that")

    def claim_one(self, topic: str = "t", **named: Any) -> Row:
        """Claim exactly one message."""
        (claimed,) = self.claim(topic, limit=1, **named)
        return claimed

    def settle(self, function: str, claimed: Iterable[Row], *arguments: Any, **named: Any) -> list[int]:
        """Settle claimed messages and return the ids whose lock was lost.

        Each argument is a list with one value per message.
        """
        held = list(claimed)
        lost: list[int] = self.call(function, [c.id for c in held], [c.claim_id for c in held], *arguments, **named)
        return lost

    def message(self, message_id: int) -> Row:
        """Return the live row; None if there is none."""
        return self.row("SELECT * FROM messages.message WHERE id = %s", [message_id])

    def archived(self, message_id: int) -> Row:
        """Return the archive's row; None if there is none."""
        return self.row("SELECT * FROM messages.message_archive WHERE id = %s", [message_id])

    def depth(self, topic: str = "t") -> int | None:
        """Return the counter of a topic with max_depth plus its pending changes; None if it has no counter."""
        row = self.row(
            "SELECT d.rows + coalesce((SELECT sum(c.change)::bigint FROM messages.depth_change AS c "
            "WHERE c.topic = d.topic), 0) AS depth"
            " FROM messages.depth AS d WHERE d.topic = %s",
            [topic],
        )
        depth: int | None = row and row.depth
        return depth

    def ids(self) -> list[int]:
        """Return the ids of all live messages."""
        return [row.id for row in self.rows("SELECT id FROM messages.message ORDER BY id")]

    def policy(self, topic: str = "t", **settings: Any) -> None:
        """Set settings of a topic's policy; a dict is a JSON document."""
        self.conn.execute(
            "INSERT INTO messages.topic (topic) SELECT %(topic)s WHERE NOT EXISTS (SELECT "
            "FROM messages.topic WHERE topic = %(topic)s)",
            {"topic": topic},
        )
        new = sql.SQL(", ").join(
            sql.SQL("{} = {}").format(sql.Identifier(setting), _expression(v)) for setting, v in settings.items()
        )
        self.conn.execute(sql.SQL("UPDATE messages.topic SET {} WHERE topic = {}").format(new, topic))

    def schedule(self, name: str = "s", cron: str = "* * * * *", **columns: Any) -> None:
        """Insert a schedule; its topic is t by default."""
        given = {"name": name, "cron": cron, "topic": "t", **columns}
        statement = sql.SQL("INSERT INTO messages.schedule ({}) VALUES ({})").format(
            sql.SQL(", ").join(map(sql.Identifier, given)), sql.SQL(", ").join(map(_expression, given.values()))
        )
        self.conn.execute(statement)

    def scheduled(self, name: str = "s") -> Row:
        """Return the row of a schedule; None if there is none."""
        return self.row("SELECT * FROM messages.schedule WHERE name = %s", [name])

    def runs(self, name: str = "s") -> list[Row]:
        """Return the runs of a schedule, by tick."""
        return self.rows("SELECT * FROM messages.schedule_run WHERE schedule = %s ORDER BY tick", [name])

    def stop_clock(self, at: str) -> None:
        """Stop the clock of this connection at a point in time."""
        self.clock_is_stopped = True
        self.conn.execute("SELECT set_config('messages.fake_now', %s, false)", [at])

    def later(self, interval: str) -> None:
        """Advance the clock of this connection by an interval, and stop it there."""
        self.clock_is_stopped = True
        self.conn.execute(
            "SELECT set_config('messages.fake_now', (messages.now() + %s::interval)::text, false)", [interval]
        )

    def buffers(self, statement: str, values: Sequence[Any] | dict[str, Any] = ()) -> int:
        """Run a statement twice and return how many pages the second run read.

        The pages of the functions that it called are included.
        """
        # The setting of the functions that call the inner ones.
        self.conn.execute("SET enable_seqscan = off")
        self.rows(statement, values)
        (plan,) = self.value("EXPLAIN (ANALYZE, BUFFERS, FORMAT json) " + statement, values)
        self.conn.execute("RESET enable_seqscan")
        return int(plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"])

    def arm(self, worker: str = "sleeper", topics: list[str] | None = None, look_in: str = "1 hour") -> None:
        """Arm a sleeper."""
        self.conn.execute("SELECT messages.arm(%s, %s, %s)", [worker, topics, look_in])


class Listener:
    """A connection that listens on channels, and can show what was sent and that nothing was."""

    def __init__(self, conn: psycopg.Connection[Any], *channels: str) -> None:
        self.conn = conn
        self.channels = channels
        for channel in channels:
            conn.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))

    def received(self) -> list[str]:
        """Return the payloads of everything that was committed before this call, in the order of the commits."""
        # Notifications arrive in the order of commits: what was committed before this one arrives before it.
        self.conn.execute("SELECT pg_notify(%s, 'that is all')", [self.channels[0]])
        received: list[str] = []
        for notify in self.conn.notifies(timeout=30):
            if notify.payload == "that is all":
                return received
            received.append(notify.payload)
        raise AssertionError("the listener did not receive its own notification")


class Background:
    """Runs calls on threads, and shows when one waits for a lock."""

    def __init__(self, watcher: psycopg.Connection[Any]) -> None:
        self.watcher = watcher
        self.threads = ThreadPoolExecutor(max_workers=8)

    def start(self, call: Any, *arguments: Any, **named: Any) -> Future[Any]:
        """Start a call."""
        return self.threads.submit(call, *arguments, **named)

    def start_blocked(self, queue: Queue, call: Any, *arguments: Any, **named: Any) -> Future[Any]:
        """Start a call that uses this queue's connection, and return when it waits for a lock."""
        started = self.start(call, *arguments, **named)
        eventually(lambda: started.done() or self.is_blocked(queue))
        assert not started.done(), "the call waited for no lock"
        return started

    def is_blocked(self, queue: Queue) -> bool:
        """Whether the statement that runs on this queue's connection waits for another session's lock."""
        row = self.watcher.execute(
            "SELECT cardinality(pg_blocking_pids(%s)) > 0", [queue.conn.info.backend_pid]
        ).fetchone()
        return row == (True,)


def _call(function: str, arguments: Sequence[Any], named: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    values = {f"a{n}": _adapted(value) for n, value in enumerate(arguments)}
    values |= {name: _adapted(value) for name, value in named.items()}
    given = [f"%(a{n})s" for n in range(len(arguments))] + [f"p_{name} => %({name})s" for name in named]
    return f"SELECT messages.{function}({', '.join(given)})", values


def _adapted(value: Any) -> Any:
    return Jsonb(value) if isinstance(value, dict) else value


def _expression(value: Any) -> sql.Composable:
    return value if isinstance(value, sql.Composable) else sql.Literal(_adapted(value))
