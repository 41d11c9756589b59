"""`pgrouse schedule`: publish messages on a schedule."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from pgrouse.cli.command import CliSession, CommandGroup
from pgrouse.cli.output import Column
from pgrouse.cli.param_types import DURATION, HEADER
from pgrouse.cli.publish import utf8
from pgrouse.errors import ExitCode
from pgrouse.format import show_age, show_ago

if TYPE_CHECKING:
    import psycopg

NEXT = 5
RUNS = 10
MISSED_LIMIT = 100
COLUMNS = (
    "name",
    "cron",
    "time_zone",
    "topic",
    "channel",
    "key",
    "priority",
    "payload",
    "headers",
    "jitter",
    "missed",
    "missed_limit",
)
FACTS = """
  SELECT s.name, s.cron, s.time_zone, s.topic, s.channel, s.key, s.priority, s.jitter, s.missed, s.missed_limit,
         CASE
           WHEN s.paused_at IS NOT NULL THEN 'paused'
           WHEN s.failures > 0 THEN 'failing'
           WHEN s.next_tick IS NULL THEN 'over'
           ELSE 'on'
         END AS state,
         s.paused_at, s.paused_by, s.paused_reason, s.next_tick, s.last_tick, s.last_fired_at, s.last_message_id,
         s.last_error, s.failed_at, s.failures, s.retry_at, s.created_at, s.created_by,
         s.payload::text AS payload, s.headers::text AS headers
  FROM messages.schedule AS s
  WHERE %(name)s::text IS NULL OR s.name = %(name)s
  ORDER BY s.name"""
NEXT_TICKS = """
  SELECT t.at, to_char(t.at AT TIME ZONE %(time_zone)s, 'Dy YYYY-MM-DD HH24:MI:SS') AS local
  FROM messages.next_ticks(%(cron)s, %(time_zone)s, %(count)s) AS t (at)"""
LAST_RUNS = """
  SELECT r.tick, r.outcome, r.message_id, r.missed_from, r.fired_at, r.run_by
  FROM messages.schedule_run AS r WHERE r.schedule = %s ORDER BY r.tick DESC LIMIT %s"""


@click.group(cls=CommandGroup)
def schedule() -> None:
    """Publish messages on a schedule."""


@schedule.command()
@click.argument("name")
@click.argument("cron")
@click.argument("topic")
@click.argument("payload", required=False, metavar="[JSON | -]")
@click.option("--time-zone", default="UTC", show_default=True, help="The time zone of the schedule, by its IANA name.")
@click.option(
    "--missed",
    type=click.Choice(("skip", "once", "all")),
    default="once",
    show_default=True,
    help="For missed ticks: skip them, publish one message for all of them, or one for each.",
)
@click.option(
    "--missed-limit",
    type=click.IntRange(1, 1000),
    help="With --missed all: the maximum number, the newest.  [default: 100]",
)
@click.option(
    "--jitter", type=DURATION, default="0s", show_default=True, help="Delay each message by up to this, like 5m."
)
@click.option("--priority", type=click.IntRange(0, 9), default=5, show_default=True, help="0 goes first, 9 last.")
@click.option("--key", help="Deduplication key: while a message with it waits, a tick publishes none.")
@click.option("--channel", help="Fairness and limit group inside the topic.")
@click.option("--header", "headers", type=HEADER, multiple=True, help="A header; may be given several times.")
@click.option("--replace", is_flag=True, help="Replace the schedule of this name if it exists.")
@click.pass_obj
def add(
    session: CliSession,
    /,
    name: str,
    payload: str | None,
    headers: tuple[tuple[str, str], ...],
    missed_limit: int | None,
    replace: bool,
    **values: str | int | timedelta | None,
) -> None:
    """Publish a message to TOPIC at the times of CRON.

    CRON has five fields (minute, hour, day of month, month, day of week), or is @hourly, @daily, @weekly, @monthly or @yearly, or an
    interval like "30 seconds". The payload is JSON; - reads it from the standard input. Without one it is {}.

    \b
    pgrouse schedule add report '0 2 * * mon-fri' report.nightly --time-zone Europe/Berlin
    """  # noqa: D301 - click reads the real \b
    from pgrouse.jsonb import encode  # noqa: PLC0415

    if missed_limit is not None and values["missed"] != "all":
        raise click.UsageError(f"--missed-limit needs --missed all, not --missed {values['missed']}")
    given = {
        **values,
        "missed_limit": missed_limit or MISSED_LIMIT,
        "name": name,
        "payload": _payload(payload),
        "headers": encode(dict(headers)) if headers else None,
    }
    with session.connect() as conn:
        conn.execute(_statement(replace), given)
        _show(session, conn, name)


def _payload(text: str | None) -> str:
    from pgrouse.jsonb import Raw, encode  # noqa: PLC0415

    if text is None:
        return "{}"
    return encode(Raw(utf8(sys.stdin.buffer.read(), "payload") if text == "-" else text))


def _statement(replace: bool) -> bytes:
    """Return the INSERT of a schedule; with replace one that changes it if it is there."""
    names, values = ", ".join(COLUMNS), ", ".join(f"%({column})s" for column in COLUMNS)
    insert = f"INSERT INTO messages.schedule ({names}) VALUES ({values})"  # noqa: S608 - constants only
    changes = ", ".join(f"{column} = excluded.{column}" for column in COLUMNS)
    return (insert + f" ON CONFLICT (name) DO UPDATE SET {changes}" * replace).encode()


@schedule.command("list")
@click.pass_obj
def list_schedules(session: CliSession) -> None:
    """List the schedules."""
    with session.connect() as conn:
        rows = _facts(conn)
        clock = _clock(conn)
        shown = [_listed(session, conn, row, clock) for row in rows]
    columns = [
        Column("NAME", "name", wide=True),
        Column("STATE", "state", style=lambda state: {"on": "green", "paused": "yellow"}.get(state, "red")),
        Column("CRON", "cron"),
        Column("TIME ZONE", "time_zone"),
        Column("TOPIC", "topic", wide=True),
        Column("NEXT", "until"),
        Column("LAST", "since"),
        Column("ERROR", "last_error", wide=True, optional=True),
    ]
    session.output.rows(columns, shown, "no schedule: add one with `pgrouse schedule add`")


def _listed(session: CliSession, conn: psycopg.Connection, row: dict[str, Any], now: datetime) -> dict[str, Any]:
    """Return a row of the list: for people with times from now, as JSON with all that is known."""
    if session.as_json:
        return _as_json(row) | {"next_ticks": [at for at, _ in _next_ticks(conn, row)]}
    next_tick = row["next_tick"] if row["paused_at"] is None else None
    return row | {"until": _ago(next_tick, now), "since": _ago(row["last_fired_at"], now)}


@schedule.command()
@click.argument("name")
@click.pass_obj
def show(session: CliSession, name: str) -> int:
    """Show a schedule, its next five ticks and its last ten runs."""
    with session.connect() as conn:
        return _show(session, conn, name)


@schedule.command()
@click.argument("name")
@click.option("--reason", help="The reason, shown to other operators.")
@click.pass_obj
def pause(session: CliSession, name: str, reason: str | None) -> None:
    """Pause a schedule until it is resumed. The ticks in between are skipped."""
    with session.connect() as conn:
        was_on = conn.execute("SELECT messages.pause_schedule(%s, %s)", [name, reason]).fetchone() == (True,)
    _say(
        session, name, f"{name} is paused" if was_on else f"{name} was paused already", was="on" if was_on else "paused"
    )


@schedule.command()
@click.argument("name")
@click.pass_obj
def resume(session: CliSession, name: str) -> None:
    """Resume a paused schedule with its next tick."""
    with session.connect() as conn:
        was_paused = conn.execute("SELECT messages.resume_schedule(%s)", [name]).fetchone() == (True,)
    _say(
        session,
        name,
        f"{name} goes on" if was_paused else f"{name} was not paused",
        was="paused" if was_paused else "on",
    )


@schedule.command("run-now")
@click.argument("name")
@click.pass_obj
def run_now(session: CliSession, name: str) -> int:
    """Publish the message of a schedule now, and print its id. Its ticks stay as they are."""
    with session.connect() as conn:
        message_id, what = (
            conn.execute("SELECT r.id, r.what FROM messages.run_schedule(%s) AS r", [name]).fetchone() or ()
        )
    if session.as_json:
        session.output.record({"name": name, "id": message_id, "what": what})
    elif what == "published":
        session.output.say(str(message_id))
    if what == "published":
        return ExitCode.OK
    session.output.problem(
        "the topic is full and drops messages: nothing was published"
        if message_id is None
        else f"message {message_id} has the key of this schedule: nothing was published"
    )
    return ExitCode.FOUND_A_PROBLEM


@schedule.command()
@click.argument("name")
@click.pass_obj
def remove(session: CliSession, name: str) -> int:
    """Remove a schedule and the history of its runs. Messages that it published stay."""
    with session.connect() as conn:
        removed = conn.execute("DELETE FROM messages.schedule AS s WHERE s.name = %s", [name]).rowcount
    if not removed:
        return _missing(session, name)
    _say(session, name, f"{name} is removed", removed=True)
    return ExitCode.OK


def _facts(conn: psycopg.Connection, name: str | None = None) -> list[dict[str, Any]]:
    from psycopg.rows import dict_row  # noqa: PLC0415

    return conn.cursor(row_factory=dict_row).execute(FACTS, {"name": name}).fetchall()


def _clock(conn: psycopg.Connection) -> datetime:
    row: Any = conn.execute("SELECT clock_timestamp()").fetchone()
    now: datetime = row[0]
    return now


def _next_ticks(conn: psycopg.Connection, row: dict[str, Any]) -> list[tuple[datetime, str]]:
    """Return the next ticks, and what the clocks of the time zone show then; none of a schedule that is paused or cannot tick."""
    from psycopg import errors  # noqa: PLC0415

    if row["paused_at"] is not None:
        return []
    try:
        return conn.execute(NEXT_TICKS, {**row, "count": NEXT}).fetchall()
    except errors.InvalidParameterValue:  # its last_error says why
        return []


def _show(session: CliSession, conn: psycopg.Connection, name: str) -> int:
    from psycopg.rows import dict_row  # noqa: PLC0415

    rows = _facts(conn, name)
    if not rows:
        return _missing(session, name)
    runs = conn.cursor(row_factory=dict_row).execute(LAST_RUNS, [name, RUNS]).fetchall()
    ticks = _next_ticks(conn, rows[0])
    if session.as_json:
        session.output.record(_as_json(rows[0]) | {"next_ticks": [at for at, _ in ticks], "runs": runs})
    else:
        _print(session, rows[0], ticks, runs, _clock(conn))
    return ExitCode.OK


def _as_json(row: dict[str, Any]) -> dict[str, Any]:
    from pgrouse.jsonb import Raw  # noqa: PLC0415

    return row | {name: Raw(row[name]) for name in ("payload", "headers") if row[name] is not None}


def _print(
    session: CliSession,
    row: dict[str, Any],
    ticks: list[tuple[datetime, str]],
    runs: list[dict[str, Any]],
    now: datetime,
) -> None:
    """Print a schedule for people: what it is, when it is next, what it did."""
    session.output.say(f"schedule {row['name']}  {row['state']}")
    facts = {
        "cron": f"{row['cron']} ({row['time_zone']})",
        "topic": row["topic"],
        "channel": row["channel"],
        "key": row["key"],
        "priority": row["priority"],
        "payload": row["payload"],
        "headers": row["headers"],
        "jitter": show_age(row["jitter"]) if row["jitter"] else None,
        "missed": row["missed"] + (f", {row['missed_limit']} at most" if row["missed"] == "all" else ""),
        "paused": row["paused_at"]
        and f"{_ago(row['paused_at'], now)} by {row['paused_by']}: {row['paused_reason'] or 'no reason given'}",
        "error": row["last_error"] and f"{row['last_error']} (tried again {_ago(row['retry_at'], now)})",
    }
    lines = [(label, value) for label, value in facts.items() if value is not None]
    lines += [("next" if n == 0 else "", f"{local} ({_ago(at, now)})") for n, (at, local) in enumerate(ticks)]
    lines += [("last" if n == 0 else "", _run(run, now)) for n, run in enumerate(runs)]
    for label, value in lines:
        session.output.say(f"  {label:<10}{value}")


def _run(run: dict[str, Any], now: datetime) -> str:
    message = "" if run["message_id"] is None else f" message {run['message_id']}"
    by = f" by {run['run_by']}" if run["run_by"] else ""
    # A run by hand has no tick.
    tick = "" if run["run_by"] else f", of {_moment(run['tick'])}"
    missed = f", none since {_moment(run['missed_from'])}" if run["missed_from"] else ""
    return f"{run['outcome']}{message}{by} {_ago(run['fired_at'], now)}{tick}{missed}"


def _moment(at: datetime) -> str:
    return f"{at.astimezone():%Y-%m-%d %H:%M:%S%z}"


def _ago(at: datetime | None, now: datetime) -> str | None:
    return None if at is None else show_ago(now - at)


def _say(session: CliSession, name: str, text: str, **facts: str | bool) -> None:
    if session.as_json:
        session.output.record({"name": name, **facts})
    session.output.say(text)


def _missing(session: CliSession, name: str) -> int:
    session.output.problem(f"there is no schedule {name}: see `pgrouse schedule list`")
    return ExitCode.FOUND_A_PROBLEM
