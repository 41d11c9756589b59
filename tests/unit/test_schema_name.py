"""What a statement becomes for a schema with another name than `messages`."""

from __future__ import annotations

import pickle
import re
from itertools import permutations
from pathlib import Path

import pytest
from psycopg import sql

from pgrouse.database import connection_schema, schema_name
from pgrouse.database.install import schema
from pgrouse.database.schema_name import MAX_BYTES, ROLES, SchemaName, checked
from tests.unit.notify_channels import notify_channels

QUEUE = schema_name.schema_name('My "Queue"')
PLAIN = schema_name.schema_name("orders")
COMMENTS = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
# What names the schema, a role of it, or a thing in it.
LEFT = re.compile(
    rf"""(?<![\w"])messages\s*\.|"messages"\s*\.|(?i:\bschema)\s+messages\b|messages_(?:{"|".join(ROLES)})\b|'messages'"""
)


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("SELECT messages.now()", "SELECT Q.now()"),
        ("SELECT Messages . now()", "SELECT Q . now()"),
        ('SELECT a FROM "messages"."topic"', 'SELECT a FROM Q."topic"'),
        ("SELECT m.messages, messages, x.messages.y FROM t AS messages", None),
        ("GRANT USAGE ON SCHEMA messages TO messages_worker", 'GRANT USAGE ON SCHEMA Q TO "My ""Queue""_worker"'),
        ("CREATE SCHEMA IF NOT EXISTS messages", "CREATE SCHEMA IF NOT EXISTS Q"),
        ("SELECT %(messages)s, $1 -- messages.x is 'it\n/* messages.x */", None),
        # Literals: names that are parsed, names as they are, parts of statements, texts.
        ("SELECT 'messages.topic'::regclass, to_regproc('messages.f')",
         "SELECT 'Q.topic'::regclass, to_regproc('Q.f')"),
        ("SELECT 'messages'::pg_catalog.regnamespace, to_regnamespace( 'messages')",
         "SELECT 'Q'::pg_catalog.regnamespace, to_regnamespace( 'Q')"),
        ("WHERE nspname = 'messages' AND rolname <> 'messages_owner'",
         """WHERE nspname = 'My "Queue"' AND rolname <> 'My "Queue"_owner'"""),
        ("SELECT 'messages_owner'::regrole", """SELECT '"My ""Queue""_owner"'::regrole"""),
        ("has_schema_privilege(r.oid, 'messages', 'USAGE')", """has_schema_privilege(r.oid, 'My "Queue"', 'USAGE')"""),
        ("format('ALTER TABLE messages.%I SET x', a)", "format('ALTER TABLE Q.%I SET x', a)"),
        ("to_regclass('messages.' || name)", "to_regclass('Q.' || name)"),
        ("'GRANT messages_operator TO %I; USAGE ON SCHEMA messages'",
         """'GRANT "My ""Queue""_operator" TO %I; USAGE ON SCHEMA Q'"""),
        ("'it''s said by messages.doctor() to messages of others.'",
         "'it''s said by Q.doctor() to messages of others.'"),
        (r"E'it\'s messages.x'", r"E'it\'s Q.x'"),
        ("jsonb_build_object('messages', 1)", None),
        # Functions and blocks.
        ("AS $$ SELECT messages.f('messages.t'::regclass) -- messages.x $$",
         "AS $$ SELECT Q.f('Q.t'::regclass) -- messages.x $$"),
        ("$x$ $$messages.f()$$ $x$ messages.g()", "$x$ $$Q.f()$$ $x$ Q.g()"),
        # Settings.
        ("current_setting('messages.actor', true)", "current_setting('G.actor', true)"),
        ("set_config(\n  'messages.actor', 'messages.actor', true)", "set_config(\n  'G.actor', 'Q.actor', true)"),
        ("SET LOCAL messages.fake_now = ''", "SET LOCAL G.fake_now = ''"),
        # NOTIFY channels.
        ("SELECT p.notify IN ('auto'), notify x, listen y", None),
        ("PERFORM messages.notify('cancelled', x)", """PERFORM Q.notify('My "Queue"_cancelled', x)"""),
        ("LISTEN settled; UNLISTEN \"settled\"", 'LISTEN "My ""Queue""_settled"; UNLISTEN "My ""Queue""_settled"'),
    ],
)  # fmt: skip
def test_a_statement_names_the_schema_and_all_that_is_named_after_it(statement: str, expected: str | None) -> None:
    wanted = (expected or statement).replace("G.", f"{QUEUE.settings}.")
    wanted = re.sub(r"\bQ\b", lambda _: QUEUE.identifier, wanted)

    assert QUEUE.render(statement) == wanted
    assert QUEUE.render_bytes(statement.encode()) == wanted.encode()
    assert schema_name.DEFAULT.render(statement) is statement


def test_values_in_a_composed_statement_stay() -> None:
    query = sql.SQL("SELECT messages.f({}), {} FROM {}, {}").format(
        sql.Literal("messages.f"), sql.Placeholder(), sql.Identifier("messages", "topic"), sql.Identifier("messages")
    )

    rendered = connection_schema.composed(query, PLAIN)

    assert rendered.as_string(None) == """SELECT "orders".f('messages.f'), %s FROM "orders"."topic", "messages\""""


def test_values_in_a_statement_without_parameters_stay() -> None:
    assert PLAIN.render_around_values("SELECT a FROM messages.message WHERE topic = 'messages.f'") == (
        "SELECT a FROM \"orders\".message WHERE topic = 'messages.f'"
    )


@pytest.mark.parametrize("name", ["orders", 'My "Queue"', "größe 😀", "Messages", "a-b", "select", "x" * MAX_BYTES])
def test_a_schema_may_have_a_name_that_needs_quotes(name: str) -> None:
    assert schema_name.schema_name(name).name == name


@pytest.mark.parametrize(
    "name",
    ["", "x" * (MAX_BYTES + 1), "é" * 23, "it's", "a\\b", "a$b", "100%", "a.b", "a:b", "a\nb", " a", "public", "pg_a",
     "information_schema", "cron"],
)  # fmt: skip
def test_a_name_that_cannot_be_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(ValueError, match=r"schema of its own|the name of a schema"):
        checked(name)


def test_a_name_is_one_object_in_every_process() -> None:
    assert pickle.loads(pickle.dumps(QUEUE)) is QUEUE


def test_two_schemas_have_no_name_in_common() -> None:
    names = ["messages", "orders", "Orders", "order s", "order_s", "o$".replace("$", "é"), 'My "Queue"', "my__queue"]
    channels = notify_channels()
    every = [_names(schema_name.schema_name(each), channels) for each in names]

    assert all(one.isdisjoint(other) for one, other in permutations(every, 2))
    # `x_new_message` is a channel of `x` only.
    assert not [(one, other) for one, other in permutations(channels, 2) if one.endswith(f"_{other}")]
    assert all(len(each.encode()) <= 63 for each in _names(schema_name.schema_name("x" * MAX_BYTES), channels))


def _names(of: SchemaName, channels: set[str]) -> set[str]:
    # The server compares names of settings without regard to case.
    settings = {of.setting("actor").lower()}
    return {*map(of.role, ROLES), *map(of.channel, channels), *settings, f"{of.name}.prune_cron_history"}


def test_the_name_in_front_of_settings_is_valid() -> None:
    assert re.fullmatch(r"[a-z_][a-z0-9_$]*", QUEUE.settings)
    assert "$$" not in schema_name.schema_name("ééé").settings
    assert PLAIN.settings == "orders"


def test_every_sql_file_is_rendered_whole() -> None:
    left = {}
    for file in sorted(Path(str(schema.sql_root())).rglob("*.sql")):
        text = COMMENTS.sub("", QUEUE.render(file.read_text()))
        if found := [text[max(0, each.start() - 40) : each.end() + 20] for each in LEFT.finditer(text)]:
            left[file.name] = found

    # It is the word, as a key of JSON.
    assert list(left) == ["create_delivery.sql", "replay_alerts.sql"]
    assert len(left["create_delivery.sql"]) == len(left["replay_alerts.sql"]) == 1
    assert "'total', g.count, 'messages'" in left["create_delivery.sql"][0]
    assert "jsonb_build_object('messages'" in left["replay_alerts.sql"][0]


def test_a_text_for_people_names_the_schema() -> None:
    assert PLAIN.text("the schema `messages`: GRANT messages_worker; SELECT messages.tick(); the messages.") == (
        'the schema `orders`: GRANT "orders_worker"; SELECT "orders".tick(); the messages.'
    )
