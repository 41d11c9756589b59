"""`pgrouse audit`: the actions of operators."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import click
from psycopg.rows import dict_row

from pgrouse.cli.command import CliSession, Command
from pgrouse.cli.param_types import DURATION, MESSAGE_ID
from pgrouse.cli.table import Column
from pgrouse.format import show_ago

LIST = b"""
  SELECT a.id, a.at, a.actor, a.db_user, a.action, a.topic, a.target, a.detail, clock_timestamp() - a.at AS age
  FROM messages.audit AS a
  WHERE (%(since)s::interval IS NULL OR a.at > clock_timestamp() - %(since)s)
    AND (%(actor)s::text IS NULL OR a.actor = %(actor)s)
    AND (%(topic)s::text IS NULL OR a.topic = %(topic)s OR a.detail -> 'topics' ? %(topic)s)
    AND (%(before)s::bigint IS NULL OR a.id < %(before)s)
  ORDER BY a.id DESC LIMIT %(limit)s"""
LONGEST = 200  # characters of the detail in a table


@click.command(cls=Command)
@click.option("--since", type=DURATION, help="Only actions of this time, like 30m or 7d.")
@click.option("--actor", metavar="NAME", help="Only actions of this user or token.")
@click.option("--topic", help="Only actions on this topic.")
@click.option("--before", type=MESSAGE_ID, help="Only actions before this one: the next page.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="The maximum number.")
@click.pass_obj
def audit(session: CliSession, /, limit: int, **filters: str | int | timedelta | None) -> None:
    """List the actions of operators, the latest first.

    Cancelled, skipped, edited and redriven messages, pauses, changed policies, schedules, subscriptions and tokens; by the command line,
    Python, SQL, HTTP or the dashboard. Entries are kept for a year.
    """
    with session.read() as conn:
        rows = conn.cursor(row_factory=dict_row).execute(LIST, {**filters, "limit": limit}).fetchall()
    ages = [row.pop("age") for row in rows]
    if not session.as_json:
        rows = [_shown(row) | {"age": age} for row, age in zip(rows, ages, strict=True)]
    if session.output.rows(_columns(), rows, "no actions") == limit:
        session.output.note(f"there may be more: --before {rows[-1]['id']}")


def _columns() -> list[Column]:
    return [
        Column("ID", "id", right=True, spare=True),
        Column("WHEN", "age", show_ago),
        Column("WHO", "who", wide=True),
        Column("WHAT", "action"),
        Column("TOPIC", "topic", wide=True),
        Column("TO WHAT", "target", wide=True, optional=True),
        Column("MORE", "more", wide=True, optional=True),
    ]


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    who = row["actor"] if row["actor"] == row["db_user"] else f"{row['actor']} (as {row['db_user']})"
    return row | {"who": who, "more": "; ".join(_lines(row["detail"]))[:LONGEST] or None}


def _lines(detail: dict[str, Any]) -> list[str]:
    """Write the detail of an action: `name value`, and of a change `name old -> new`."""
    lines = []
    for name, value in detail.items():
        if name == "changes" and isinstance(value, dict):
            lines += [f"{setting} {_text(each['old'])} -> {_text(each['new'])}" for setting, each in value.items()]
        else:
            lines.append(f"{name} {_text(value)}")
    return lines


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "-" if value is None else json.dumps(value, ensure_ascii=False)
