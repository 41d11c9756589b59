"""`pgrouse audit`: the actions of operators."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

import click

from pgrouse.client.call import run
from pgrouse.client.queries.audit import AuditedAction, find_actions
from pgrouse.client.queries.clock import now
from pgrouse.terminal.command import CliSession, Command
from pgrouse.terminal.param_types import DURATION, MESSAGE_ID
from pgrouse.terminal.table import Column
from pgrouse.values.format import show_ago
from pgrouse.values.jsonb import Raw

LONGEST = 200  # characters of the detail in a table


@click.command(cls=Command)
@click.option("--since", type=DURATION, help="Only actions of this time, like 30m or 7d.")
@click.option("--actor", metavar="NAME", help="Only actions of this user or token.")
@click.option("--topic", help="Only actions on this topic.")
@click.option("--before", type=MESSAGE_ID, help="Only actions before this one: the next page.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="The maximum number.")
@click.pass_obj
def audit(
    session: CliSession, actor: str | None, topic: str | None, since: timedelta | None, before: int | None, limit: int
) -> None:
    """List the actions of operators, the latest first.

    Cancelled, skipped, edited and redriven messages, pauses, changed policies, schedules, subscriptions and tokens; by
    the command line, Python, SQL, HTTP or the dashboard. Entries are kept for a year.
    """
    with session.read() as conn:
        clock = run(conn, now())
        after = None if since is None else clock - since
        found = run(conn, find_actions(actor=actor, topic=topic, since=after, before=before, limit=limit))
    rows = [_record(each) if session.as_json else _shown(each, clock) for each in found]
    if session.rows(_columns(), rows, "no actions") == limit:
        session.note(f"there may be more: --before {found[-1].id}")


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


def _record(found: AuditedAction) -> dict[str, Any]:
    row = asdict(found)
    return row | {"detail": Raw(row.pop("detail_json"))}


def _shown(found: AuditedAction, clock: datetime) -> dict[str, Any]:
    who = found.actor if found.actor == found.db_user else f"{found.actor} (as {found.db_user})"
    return asdict(found) | {
        "age": clock - found.at,
        "who": who,
        "more": "; ".join(_lines(found.detail))[:LONGEST] or None,
    }


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
