"""docs/reference/protocol.md matches the schema: no function, table, column or grant is missing or invented."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import psycopg
import pytest
from docs import internals

from tests.docs.page import ROOT, Page
from tests.docs.psql import Psql, same
from tests.server.postgres import Postgres
from tests.sql.deaths import die_ago
from tests.sql.queue import Queue

PAGE = Page("docs/reference/protocol.md")
# Columns that another page has.
POLICY = Page("docs/reference/configuration.md").section("Policy settings of a topic").text
SETTINGS = {
    "messages.topic": POLICY,
    "messages.inherited_policy": POLICY + PAGE.section("messages.topic").text,
}
DOCUMENTED = {text for _, text in PAGE.headings() if text.startswith("messages.")}
INTERNAL = {f"messages.{name}" for name in internals.internal()}
ROLES = ("publisher", "worker", "operator", "analyst", "maintainer")

FUNCTIONS = """
    SELECT DISTINCT 'messages.' || proname FROM pg_proc WHERE pronamespace = 'messages'::regnamespace ORDER BY 1
"""
RELATIONS = """
    SELECT 'messages.' || c.relname, array_agg(a.attname::text ORDER BY a.attnum)
    FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    WHERE c.relnamespace = 'messages'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'c') AND NOT c.relispartition
    GROUP BY c.relname
"""
EXECUTE = """
    SELECT p.proname, 'messages_' || r.role
    FROM pg_proc AS p CROSS JOIN unnest(%s::text[]) AS r (role)
    WHERE p.pronamespace = 'messages'::regnamespace AND has_function_privilege('messages_' || r.role, p.oid, 'EXECUTE')
"""


def test_every_public_table_view_type_and_function_is_documented_and_no_other(
    db: psycopg.Connection[Any],
) -> None:
    functions = {name for (name,) in db.execute(FUNCTIONS)}
    relations = {name for name, _ in db.execute(RELATIONS)}

    assert functions | relations == DOCUMENTED | INTERNAL


def test_the_page_of_internals_has_every_internal_function_and_no_other() -> None:
    assert {
        f"messages.{name}" for name in re.findall(r"^### messages\.(\w+)$", internals.page(), re.MULTILINE)
    } == INTERNAL


def test_every_column_is_named_in_the_section_of_its_table(db: psycopg.Connection[Any]) -> None:
    said = {name: PAGE.section(name).text + SETTINGS.get(name, "") for name, _ in db.execute(RELATIONS)}

    missing = [
        f"{name}.{column}"
        for name, columns in db.execute(RELATIONS)
        for column in columns
        if f"`{column}`" not in said[name]
    ]

    assert missing == []


def test_every_column_in_a_table_of_columns_exists(db: psycopg.Connection[Any]) -> None:
    invented = [
        f"{name}.{column}"
        for name, columns in db.execute(RELATIONS)
        for column in _columns_in_tables(PAGE.section(name))
        if column not in columns
    ]

    assert invented == []


def test_the_table_of_grants_matches_the_catalog(db: psycopg.Connection[Any]) -> None:
    rows = PAGE.section("Roles and grants").rows()
    found = {
        (row[0].strip("`"), f"messages_{role}")
        for row in rows
        if len(row) == 1 + len(ROLES)
        for role, cell in zip(ROLES, row[1:], strict=True)
        if cell == "yes"
    }

    assert found == set(db.execute(EXECUTE, [list(ROLES)]).fetchall())


def test_every_notification_channel_of_the_sql_is_documented_and_no_other() -> None:
    sql = "".join(file.read_text() for file in (ROOT / "sql").glob("*/*.sql"))

    documented = {row[0].strip("`") for row in PAGE.section("Notification channels").rows()}

    assert documented == set(re.findall(r"messages\.notify\('(\w+)'", sql))


def test_the_worked_example_prints_the_output_on_the_page(psql: Psql) -> None:
    examples = _examples()

    printed = [(line, same(psql.run(script))) for line, script, _ in examples]

    assert len(examples) > 5
    assert printed == [(line, same(shown)) for line, _, shown in examples]


@pytest.mark.pg_cron
def test_the_example_of_pg_cron_publishes(server: Postgres, db: psycopg.Connection[Any]) -> None:
    example = PAGE.section("Scheduled messages").blocks[0].text

    with server.admin(server.cron_database) as cron:
        cron.execute("CREATE EXTENSION IF NOT EXISTS pg_cron")
        cron.execute(example.encode())
        command = cron.execute("SELECT command FROM cron.job WHERE jobname = 'nightly-report'").fetchone()
        cron.execute("SELECT cron.unschedule('nightly-report')")
    assert command is not None
    db.execute(command[0])

    assert db.execute("SELECT topic FROM messages.message").fetchall() == [("report.nightly",)]


@pytest.mark.pg_cron
def test_the_example_of_a_scheduled_purge_deletes_older_messages_and_can_be_rescheduled(
    server: Postgres, db: psycopg.Connection[Any]
) -> None:
    example = PAGE.section("messages.purge_archive").blocks[-1].text.replace("'queue'", f"'{db.info.dbname}'")
    queue = Queue(db)
    for ago, topic in (
        ("13 hours", "webhook.received"),
        ("49 hours", "webhook.received"),
        ("11 hours", "webhook.received"),
        ("13 hours", "report.nightly"),
    ):
        die_ago(queue, ago, topic)

    with server.admin(server.cron_database) as cron:
        cron.execute("CREATE EXTENSION IF NOT EXISTS pg_cron")
        cron.execute(example.encode())
        job = cron.execute("SELECT jobid, command FROM cron.job WHERE jobname = 'purge-webhooks'").fetchone()
        assert job is not None
        cron.execute("SELECT cron.alter_job(%s, schedule => '0 3 * * *')", [job[0]])
        changed = cron.execute("SELECT schedule FROM cron.job WHERE jobid = %s", [job[0]]).fetchone()
        cron.execute("SELECT cron.unschedule('purge-webhooks')")
    db.execute(job[1])

    assert changed == ("0 3 * * *",)
    left = (
        "SELECT topic, round(extract(epoch FROM now() - archived_at) / 3600) FROM messages.message_archive ORDER BY 2"
    )
    assert db.execute(left).fetchall() == [("webhook.received", 11), ("report.nightly", 13)]


def _examples() -> list[tuple[int, str, str]]:
    """Return line, script and output of each runnable block: the output is right below it."""
    blocks = PAGE.blocks
    return [
        (block.line, block.text, shown.text)
        for block, shown in pairwise(blocks)
        if block.kind == "sql runnable" and shown.line == block.end + 1
    ]


def _columns_in_tables(section: Page) -> Iterator[str]:
    for row in section.rows():
        yield from re.findall(r"`(\w+)`", row[0])
