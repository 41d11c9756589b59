"""No function, table, error or notification shows a role what it may not see of messages that others published.

What a role may call and read comes from the catalog, so that a function, a table or a column that is new is tried too.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from itertools import combinations, product
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.types.json import Jsonb

from tests.server.postgres import Database
from tests.sql.queue import Queue

TOPIC = "victim"
KEYS = [f"known{n}" for n in range(3)]
CONTENT = ("payload", "body", "header", "output", "step", "staged", "scheduled")
# An analyst may also see these: where messages stand, and why.
MORE = ("progress", "error", "reason", "key", "channel", "worker")
CHANNELS = ("new_message", "settled", "cancelled", "dead_message", "alert", "topic_changed", "schedule_changed")


def secret(what: str) -> str:
    return f"secret-{what}-of-another"


class Role:
    """A role, logged in, and everything that it was ever told."""

    def __init__(self, admin: psycopg.Connection[Any], database: Database, role: str) -> None:
        self.admin, self.name, self.told = admin, f"curious_{role}", []
        self.role = role
        admin.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(self.name)))
        admin.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(f"messages_{role}"), sql.Identifier(self.name)))
        self.conn = psycopg.connect(database.server.dsn(database.name, self.name), autocommit=True)
        self.conn.add_notice_handler(lambda diag: self.told.append(("a notice", _texts(diag))))
        self.conn.add_notify_handler(lambda notify: self.told.append((notify.channel, notify.payload)))
        self.conn.execute("SET statement_timeout = '5s'; SET lock_timeout = '100ms'")
        for channel in CHANNELS:
            self.conn.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))

    def close(self) -> None:
        self.conn.close()
        self.admin.execute(sql.SQL("DROP OWNED BY {0}; DROP ROLE {0}").format(sql.Identifier(self.name)))

    def ask(self, what: str, statement: sql.Composable | str, values: list[Any] | None = None) -> None:
        """Run a statement and keep all that comes back, however it ends."""
        query = statement.encode() if isinstance(statement, str) else statement
        try:
            cursor = self.conn.execute(query, values)
            self.told.append((what, str(cursor.fetchall() if cursor.description else cursor.statusmessage)))
        except psycopg.Error as error:
            self.told.append((what, _texts(error.diag) + str(error)))

    def call_everything(self, values: dict[str, list[Any]], at_once: int = 2) -> set[str]:
        """Call each function that the role may call, and return their names.

        Each value of an argument is given, and all combinations of the values of two if two may differ `at_once`.
        """
        query = """
            SELECT p.proname, p.oid::regproc::text, coalesce(p.proargnames[1:p.pronargs], '{}'),
                   p.proargtypes::regtype[]::text[],
                   p.pronargs - p.pronargdefaults
            FROM pg_proc AS p
            WHERE p.pronamespace = 'messages'::regnamespace AND p.prokind = 'f' AND p.prorettype <> 'trigger'::regtype
              AND has_function_privilege(%s, p.oid, 'EXECUTE') AND has_schema_privilege(%s, 'messages', 'USAGE')
            ORDER BY p.proname
            """
        functions = self.admin.execute(query, [self.name, self.name]).fetchall()
        for name, function, names, types, required in functions:
            for arguments in _combinations(names, types, required, values, at_once):
                given = sql.SQL(", ").join(
                    sql.SQL("{} => %s::{}").format(sql.Identifier(argument), sql.SQL(types[names.index(argument)]))
                    for argument in arguments
                )
                statement = sql.SQL("SELECT * FROM {}({})").format(sql.SQL(function), given)
                self.ask(f"{name}()", statement, [*arguments.values()])
        return {name for name, *_ in functions}

    def read_everything(self) -> None:
        """Read each column that the role may read, of the queue and of PostgreSQL's statistics."""
        query = """
            SELECT c.oid::regclass::text, array_agg(a.attname::text)
            FROM pg_class AS c
            JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
            WHERE c.relkind IN ('r', 'p', 'v', 'm', 'S')
              AND (c.relnamespace = 'messages'::regnamespace
                OR c.relnamespace = 'pg_catalog'::regnamespace
                AND c.relname ~ '^pg_(stat|prepared|sequences|locks|cursors)')
              AND has_column_privilege(%s, c.oid, a.attnum, 'SELECT')
            GROUP BY c.oid
            """
        for relation, columns in self.admin.execute(query, [self.name]).fetchall():
            listed = sql.SQL(", ").join(map(sql.Identifier, columns))
            self.ask(relation, sql.SQL("SELECT {} FROM {}").format(listed, sql.SQL(relation)))

    def leaks(self, secrets: tuple[str, ...]) -> set[tuple[str, str]]:
        """Return which secrets the role was told by what."""
        return {(what, each) for what, text in self.told for each in secrets if secret(each) in text}


def _texts(diag: Any) -> str:
    parts = ("message_primary", "message_detail", "message_hint", "context", "internal_query", "constraint_name")
    return " ".join(str(getattr(diag, part)) for part in parts)


def _combinations(
    names: list[str], types: list[str], required: int, values: dict[str, list[Any]], at_once: int
) -> Iterator[dict[str, Any]]:
    """Yield arguments, in a mixed order: the first value of each that is required, and other values of up to two."""
    choices = {name: values.get(name) or values.get(kind, [None]) for name, kind in zip(names, types, strict=True)}
    base = {name: choices[name][0] for name in names[:required]}
    base |= {name: choices[name][0] for name in ("p_expect_result", "p_payload") if name in choices}
    found = [base]
    for differ in (each for count in range(1, at_once + 1) for each in combinations(names, count)):
        found += [base | dict(zip(differ, chosen, strict=True)) for chosen in product(*map(choices.get, differ))]
    random.Random(1).shuffle(found)
    yield from found


@pytest.fixture
def curious(request: pytest.FixtureRequest, database: Database, db: psycopg.Connection[Any]) -> Iterator[Role]:
    with closing(Role(db, database, request.param)) as role:
        yield role


class Victim:
    """What another one has in the queue: messages in every state, full of secrets."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        queue.policy(TOPIC, max_attempts=3, dead_letter=True, backoff='{"kind": "constant", "base": "1h"}')
        self.known = [self.send(key=key) for key in KEYS]
        self.secret_key = self.send(key=secret("key"), channel=secret("channel"))
        self.body = queue.publish(TOPIC, body=secret("body").encode(), key=f"{KEYS[0]}-body")
        ended = {how: self.send(topic=f"{TOPIC}.{how}") for how in ("complete", "fail", "retry", "run")}
        after = self.send(after=[ended["run"]])
        cancelled = self.send()
        queue.call("cancel", [cancelled], secret("reason"))
        self.end(ended)
        self.ids = [*self.known, self.secret_key, self.body, *ended.values(), after, cancelled]
        self.attempt = queue.call("begin_staging", "victims")
        queue.conn.execute(
            "INSERT INTO messages.publish_stage (attempt, topic, payload) VALUES (%s, %s, %s)",
            [self.attempt, TOPIC, Jsonb(secret("staged"))],
        )
        queue.schedule("victims", "0 0 1 1 *", topic=TOPIC, payload=Jsonb(secret("scheduled")))
        queue.call("pause", TOPIC + ".paused", reason=secret("reason"))

    def send(self, topic: str = TOPIC, **named: Any) -> int:
        sent = self.queue.send(
            secret("payload"), topic=topic, headers=Jsonb({"header": secret("header")}), expect_result=True, **named
        )
        return int(sent.id)

    def end(self, ended: dict[str, int]) -> None:
        """Let each message run, with a step and progress, and end it as its topic says; one keeps running."""
        for how in ended:
            (claimed,) = self.queue.claim(f"{TOPIC}.{how}", worker=secret("worker"))
            self.queue.call("save_step", claimed.id, claimed.claim_id, "step", f'"{secret("step")}"')
            self.queue.settle("set_progress", [claimed], [Jsonb({"done": 1, "total": 2, "unit": secret("progress")})])
            if how == "complete":
                self.queue.settle("complete", [claimed], [Jsonb(secret("output"))])
            elif how != "run":
                self.queue.settle(how, [claimed], [f"ValueError: {secret('error')}"])
            else:
                self.claim_id = claimed.claim_id

    def values(self, on_conflict: str) -> dict[str, list[Any]]:
        """Return what to try for an argument, by its name or its type; the first value of each is one that works."""
        return {
            "p_topic": [TOPIC],
            "p_payload": [Jsonb([1])],
            "p_key": [*KEYS, f"{KEYS[0]}-body", None],
            # Only one of append and replace is used: a replaced message has no secret left. A debounce replaces too.
            "p_on_conflict": [on_conflict, "ignore", "error", "?"],
            "p_debounce": ["1 hour", "0"] if on_conflict == "replace" else [None],
            "p_expect_result": [True],
            "p_after_failed": ["cancel", "run", "hold"],
            "p_job": ["victims", "own"],
            "p_for": ["1 minute", None],
            "bigint": [*self.ids, self.claim_id, 0],
            "bigint[]": [self.ids, [], [1]],
            "text": [TOPIC, KEYS[0], "victims", ""],
            "text[]": [[TOPIC], []],
            "interval": ["1 hour", "0"],
            "timestamp with time zone": ["2000-01-01", "2100-01-01", None],
            "messages.moment": ["2000-01-01", "2100-01-01", None],
            "boolean": [False, True],
            "integer": [100, 1, 0],
            "jsonb": [Jsonb({}), Jsonb([1]), None],
            "jsonb[]": [[Jsonb({})]],
            "bytea": [b"x", None],
            "uuid": [self.attempt],
            "uuid[]": [[self.attempt], []],
        }

    def work(self) -> None:
        """Let a worker process everything that waits, and answer with all that it was given."""
        while claimed := self.queue.claim(TOPIC, worker=secret("worker"), limit=1000):
            echoes = [Jsonb({"payload": each.payload, "headers": each.headers}) for each in claimed]
            self.queue.settle("complete", claimed, echoes)


NEVER_SEES = {"publisher": (*CONTENT, *MORE), "analyst": CONTENT, "maintainer": (*CONTENT, *MORE)}


@pytest.mark.parametrize(
    ("curious", "on_conflict"),
    [("publisher", "append"), ("publisher", "replace"), ("analyst", "append"), ("maintainer", "append")],
    indirect=["curious"],
)
@pytest.mark.parametrize("at_once", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_role_is_told_no_secret_of_a_message_of_another(
    curious: Role, on_conflict: str, queue: Queue, at_once: int
) -> None:
    victim = Victim(queue)
    values = victim.values(on_conflict)

    called = curious.call_everything(values)
    curious.read_everything()
    victim.work()
    called |= curious.call_everything(values, at_once)
    curious.read_everything()

    assert called
    assert curious.leaks(NEVER_SEES[curious.role]) == set()


@pytest.mark.parametrize("curious", ["operator"], indirect=True)
def test_the_secrets_can_be_found_by_a_role_that_may_see_them(curious: Role, queue: Queue) -> None:
    Victim(queue)

    curious.read_everything()

    assert {each for _, each in curious.leaks((*CONTENT, *MORE))} == {*CONTENT, *MORE}
