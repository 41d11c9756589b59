"""Measures what the Python package costs a publisher.

One message and many are published, each next to the same rows by psycopg alone.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import psycopg
from bench.figure import Figure, Target
from bench.postgres import Postgres
from bench.usage import Machine

from pgrouse import NewMessage, publish, publish_many

Way = Callable[[psycopg.Connection[Any]], object]

ONES = 2_000
MANY = 50_000
BLOCK = 64 * 1024
INSERT = b"INSERT INTO messages.message (topic, payload) VALUES (%s, %s) RETURNING id"
COPY = b"COPY messages.message (topic, payload) FROM STDIN"
BY_INSERT = "psycopg, a transaction of INSERTs"
BY_COPY = "psycopg, COPY of text that is there already"
PUBLISH = "publish(), a transaction"
LIST = "publish_many(), a list"
GENERATOR = "publish_many(), a generator"

MESSAGES = [NewMessage(topic="noop", payload={"n": n}) for n in range(MANY)]
TEXT = b"".join(f'noop\t{{"n": {n}}}\n'.encode() for n in range(MANY))


def measure(postgres: Postgres, machine: Machine, rounds: int) -> list[Figure]:
    """Publish in turn in each way, on one connection."""
    rates: dict[str, list[float]] = defaultdict(list)
    with postgres.database("publish_python") as database, database.connect() as conn:
        for number in range(rounds):
            machine.wait_until_quiet()
            for group in GROUPS:
                for name in group if number % 2 else reversed(group):
                    rates[name].append(rate(conn, name))
    return _figures(rates)


def rate(conn: psycopg.Connection[Any], name: str) -> float:
    """Return the messages per second of one transaction, into an empty table."""
    way, messages = WAYS[name]
    conn.execute("TRUNCATE messages.message")
    began = time.monotonic()
    with conn.transaction():
        way(conn)
    took = time.monotonic() - began
    found = conn.execute("SELECT count(*) FROM messages.message").fetchone()
    if found != (messages,):
        raise SystemExit(f"{messages} messages were published, but the table has {found}")
    return messages / took


def _insert(conn: psycopg.Connection[Any]) -> None:
    for n in range(ONES):
        conn.execute(INSERT, ["noop", json.dumps({"n": n})]).fetchone()


def _publish(conn: psycopg.Connection[Any]) -> None:
    for n in range(ONES):
        publish(conn, "noop", {"n": n})


def _copy(conn: psycopg.Connection[Any]) -> None:
    with conn.cursor() as cursor, cursor.copy(COPY) as copy:
        for start in range(0, len(TEXT), BLOCK):
            copy.write(TEXT[start : start + BLOCK])


def _publish_list(conn: psycopg.Connection[Any]) -> None:
    publish_many(conn, MESSAGES)


def _publish_generator(conn: psycopg.Connection[Any]) -> None:
    publish_many(conn, (NewMessage(topic="noop", payload={"n": n}) for n in range(MANY)))


WAYS: dict[str, tuple[Way, int]] = {
    BY_INSERT: (_insert, ONES),
    PUBLISH: (_publish, ONES),
    BY_COPY: (_copy, MANY),
    LIST: (_publish_list, MANY),
    GENERATOR: (_publish_generator, MANY),
}


# Only ways that are compared with each other take turns: a run is faster after one of its own kind than after a bulk
# publish.
GROUPS = [(BY_INSERT, PUBLISH), (BY_COPY, LIST, GENERATOR)]


def _figures(rates: dict[str, list[float]]) -> list[Figure]:
    inserts, copies = (Figure(name, "messages/s", rates[name]) for name in (BY_INSERT, BY_COPY))
    return [
        inserts,
        Figure(PUBLISH, "messages/s", rates[PUBLISH], inserts, Target(0.85, at_least=True)),
        copies,
        Figure(LIST, "messages/s", rates[LIST], copies, Target(0.7, at_least=True)),
        Figure(GENERATOR, "messages/s", rates[GENERATOR], copies),
    ]
