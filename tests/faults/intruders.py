"""Attackers in the same database: a visitor with only CONNECT, and a publisher of hostile messages."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from tests.faults.ledger import Group, Ledger, Refusal
from tests.faults.traffic import Actor

VISITOR, HOSTILE = "storm_visitor", "storm_hostile"
# On one private server, so the roles may be there already.
ROLES = (
    f"DO $$ BEGIN CREATE ROLE {VISITOR} LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$",
    f"DO $$ BEGIN CREATE ROLE {HOSTILE} LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$",
    f"GRANT messages_publisher TO {HOSTILE}",
)
CHANNELS = ("new_message", "dead_message", "topic_changed", "cancelled", "settled", "schedule_changed")
# The keys of advisory locks that the queue ever took, and more that a visitor may guess.
KEYS = (
    "armed",
    "tick",
    "awaited",
    "policed",
    "topic",
    "watch",
    "low_water",
    "channel fair",
    "topic few",
    "topic metered",
)
FORBIDDEN = (
    "SELECT payload FROM messages.message",
    "LOCK TABLE messages.message IN ACCESS SHARE MODE",
    "LOCK TABLE messages.topic IN ROW EXCLUSIVE MODE",
    "SELECT messages.tick('me')",
    "SELECT messages.pause('often', 'me')",
    "SELECT messages.claim('me', ARRAY['often'], 1)",
    "INSERT INTO messages.message (topic, payload) VALUES ('often', '1')",
    "SET ROLE messages_owner",
)


class Visitor(Actor):
    """May connect, and nothing else: takes every lock and sends every notification that such a role can."""

    def act(self, conn: psycopg.Connection[Any]) -> None:
        """Do one thing that is not forbidden, or try one that is."""
        what: Callable[[psycopg.Connection[Any]], None] = self.chance.choice(
            (self._hold_locks, self._hold_the_queue_of_notifications, self._forge, self._try)
        )
        what(conn)
        self.stopping.wait(self.chance.uniform(0.05, 0.3))

    def _hold_locks(self, conn: psycopg.Connection[Any]) -> None:
        with conn.transaction():
            conn.execute("SET LOCAL lock_timeout = '100ms'")
            for key in self.chance.sample(KEYS, 4):
                self._lock(conn, f"messages.{key}")
            self.stopping.wait(self.chance.uniform(0.5, 2))

    @staticmethod
    def _lock(conn: psycopg.Connection[Any], key: str) -> None:
        try:
            with conn.transaction():
                conn.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [key])
        except psycopg.errors.LockNotAvailable:
            pass  # another session has it already

    def _hold_the_queue_of_notifications(self, conn: psycopg.Connection[Any]) -> None:
        for channel in CHANNELS:
            conn.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        with conn.transaction():
            conn.execute("SELECT 1")
            self.stopping.wait(self.chance.uniform(0.5, 2))
        conn.execute("UNLISTEN *")

    def _forge(self, conn: psycopg.Connection[Any]) -> None:
        payload = self.chance.choice(("", "1", "often", "*", "-1", "9" * 7000, "\u202eoften", "often 1", '{"id": 1}'))
        conn.execute("SELECT pg_notify(%s, %s)", [self.chance.choice(CHANNELS), payload])

    def _try(self, conn: psycopg.Connection[Any]) -> None:
        statement = self.chance.choice(FORBIDDEN)
        try:
            with conn.transaction():
                conn.execute(statement.encode())
        except (psycopg.errors.InsufficientPrivilege, psycopg.errors.UndefinedFunction):
            return
        raise AssertionError(f"a visitor was let: {statement}")


class HostilePublisher(Actor):
    """A publisher of hostile messages: they are refused, or they end, and others continue."""

    def __init__(self, name: str, dsn: str, ledger: Ledger, seed: str) -> None:
        super().__init__(name, dsn, ledger, seed)
        self._sent = 0

    def act(self, conn: psycopg.Connection[Any]) -> None:
        """Publish one message."""
        self._sent += 1
        tag = f"{self.name}/{self._sent}"
        with self.ledger.recorded(Group("often", [tag])) as group:
            group.ids = [self._publish(conn, {"tag": tag, "do": "succeed"})]
        self.stopping.wait(self.chance.uniform(0.1, 0.4))

    def _publish(self, conn: psycopg.Connection[Any], payload: dict[str, Any]) -> int:
        columns, values = self.chance.choice(BOMBS)(self.chance)
        statement = sql.SQL(
            "INSERT INTO messages.message (topic, payload{columns})"
            " SELECT 'often', %s::jsonb || jsonb_build_object('bomb', x.bomb){values} FROM ({bomb}) AS x RETURNING id"
        ).format(
            columns=sql.SQL("".join(f", {column}" for column in columns)),
            values=sql.SQL("").join(sql.SQL(", ") + sql.SQL(value) for value in values[1:]),
            bomb=sql.SQL(values[0]),
        )
        try:
            row = conn.execute(statement, [Jsonb(payload)]).fetchone()
        except psycopg.OperationalError as error:
            if conn.closed or not isinstance(error, psycopg.errors.ProgramLimitExceeded):
                raise
            raise Refusal from error
        except (psycopg.DataError, psycopg.IntegrityError, psycopg.errors.RaiseException) as error:
            raise Refusal from error
        assert row is not None
        return int(row[0])


Bomb = tuple[tuple[str, ...], tuple[str, ...]]
HARMLESS = "SELECT '1'::jsonb AS bomb"


def _numbers(_: Random) -> Bomb:
    """80 kB that are more than a gigabyte as text."""
    return (), ("SELECT jsonb_agg('1e131071'::jsonb) AS bomb FROM generate_series(1, 9000)",)


def _few_numbers(chance: Random) -> Bomb:
    return (), (f"SELECT jsonb_agg('1e131071'::jsonb) AS bomb FROM generate_series(1, {chance.randint(1, 20)})",)


def _compressed(_: Random) -> Bomb:
    """A payload that compresses well."""
    return (), ("SELECT to_jsonb(repeat('a', 15000000)) AS bomb",)


def _deep(chance: Random) -> Bomb:
    depth = chance.choice((100, 1000, 5000))
    return (), (f"SELECT (repeat('[', {depth}) || repeat(']', {depth}))::jsonb AS bomb",)


def _headers(_: Random) -> Bomb:
    numbers = "(SELECT jsonb_build_object('h', jsonb_agg('1e131071'::jsonb)) FROM generate_series(1, 4000))"
    return ("headers",), (HARMLESS, numbers)


def _names(chance: Random) -> Bomb:
    name = chance.choice(("\\202Eevil\\200B", "a\\000Ab", "\\FEFF", "\\2028", "\\0007"))
    return (chance.choice(("channel", "key")),), (HARMLESS, f"U&'{name}'")


def _times(chance: Random) -> Bomb:
    return ("available_at",), (HARMLESS, chance.choice(("'infinity'", "'-infinity'", "'294276-01-01'::timestamptz")))


BOMBS: tuple[Callable[[Random], Bomb], ...] = (_numbers, _few_numbers, _compressed, _deep, _headers, _names, _times)
