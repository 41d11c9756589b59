"""`pgrouse schedule`: publish messages on a schedule."""

from __future__ import annotations

import sys
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

import click
import psycopg
from psycopg import errors

from pgrouse.cli.queue.publish import own_policy_options, utf8
from pgrouse.client.call import run
from pgrouse.client.calls import schedule as schedule_calls
from pgrouse.client.queries.clock import now
from pgrouse.client.queries.schedule import (
    PastRun,
    Schedule,
    add_schedule,
    change_schedule,
    delete_schedule,
    find_schedule,
    find_schedules,
    last_runs,
    local_times,
)
from pgrouse.errors import ExitCode
from pgrouse.publishing.new_message import own_policy_columns
from pgrouse.terminal.command import CliSession, CommandGroup
from pgrouse.terminal.param_types import DURATION, HEADER
from pgrouse.terminal.table import Column
from pgrouse.values.format import show_age, show_ago
from pgrouse.values.jsonb import Raw, encode

NEXT = 5
RUNS = 10
MISSED_LIMIT = 100
# What the messages of a schedule may have instead of their topic.
INHERITED = ("max-attempts", "timeout", "backoff", "retention")


@click.group(cls=CommandGroup)
def schedule() -> None:
    """Publish messages on a schedule."""


@schedule.command()
@click.argument("name")
@click.argument("cron")
@click.argument("topic")
@click.argument("payload", required=False, metavar="[JSON | -]")
@click.option(
    "--time-zone",
    metavar="NAME",
    default="UTC",
    show_default=True,
    help="The time zone of the schedule, by its IANA name; an offset like +02:00 is refused.",
)
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
    "--while-paused",
    type=click.Choice(("publish", "skip")),
    default="publish",
    show_default=True,
    help="For ticks while the topic is paused: publish their messages, which wait, or skip them.",
)
@click.option(
    "--jitter",
    type=DURATION,
    default="0s",
    show_default=True,
    help="Delay each message by up to this, like 5m, at most a day.",
)
@click.option("--priority", type=click.IntRange(0, 9), default=5, show_default=True, help="0 goes first, 9 last.")
@own_policy_options
@click.option("--key", help="Deduplication key: while a message with it waits, a tick publishes none.")
@click.option("--channel", help="The group inside the topic for fairness and limits.")
@click.option("--header", "headers", type=HEADER, multiple=True, help="A header; may be given several times.")
@click.option(
    "--replace", is_flag=True, help="Replace the schedule of this name if it exists; without it, that is an error."
)
@click.pass_obj
def add(
    session: CliSession,
    /,
    name: str,
    payload: str | None,
    headers: tuple[tuple[str, str], ...],
    missed_limit: int | None,
    replace: bool,
    **values: str | int | timedelta | dict[str, Any] | None,
) -> None:
    """Publish a message to TOPIC at the times of CRON.

    CRON has five fields (minute, hour, day of month, month, day of week), or six with the second before them, or is
    @hourly, @daily, @weekly, @monthly or @yearly, or an interval like "30 seconds". The payload is JSON; - reads it
    from the standard input. Without one it is {}.

    \b
    pgrouse schedule add report '0 2 * * mon-fri' report.nightly --time-zone Europe/Berlin
    """  # noqa: D301 - click reads the real \b
    if missed_limit is not None and values["missed"] != "all":
        raise click.UsageError(f"--missed-limit needs --missed all, not --missed {values['missed']}")
    given = {
        **values,
        **own_policy_columns(values),
        "missed_limit": missed_limit or MISSED_LIMIT,
        "name": name,
        "payload": _payload(payload),
        "headers": encode(dict(headers)) if headers else None,
    }
    with session.connect() as conn:
        run(conn, add_schedule(given, replace=replace))
        _show(session, conn, name)


def _payload(text: str | None) -> str:
    if text is None:
        return "{}"
    return encode(Raw(utf8(sys.stdin.buffer.read(), "payload") if text == "-" else text))


@schedule.command("set")
@click.argument("name")
@click.option("--cron", help="When, as of `schedule add`.")
@click.option("--topic", help="The topic of the messages.")
@click.option("--payload", metavar="JSON | -", help="Of each message; - reads it from the standard input.")
@click.option(
    "--time-zone",
    metavar="NAME",
    help="The time zone of the schedule, by its IANA name; an offset like +02:00 is refused.",
)
@click.option("--missed", type=click.Choice(("skip", "once", "all")), help="What happens with missed ticks.")
@click.option("--missed-limit", type=click.IntRange(1, 1000), help="With missed = all: the maximum number.")
@click.option(
    "--while-paused", type=click.Choice(("publish", "skip")), help="What happens with ticks while the topic is paused."
)
@click.option("--jitter", type=DURATION, help="Delay each message by up to this, like 5m, at most a day.")
@click.option("--priority", type=click.IntRange(0, 9), help="0 goes first, 9 last.")
@own_policy_options
@click.option(
    "--inherit",
    type=click.Choice(INHERITED),
    multiple=True,
    help="Take this from the topic again; may be given several times.",
)
@click.option("--key", help="Deduplication key; empty: none.")
@click.option("--channel", help="Fairness and limit group inside the topic; empty: none.")
@click.option("--header", "headers", type=HEADER, multiple=True, help="A header; all that it had are replaced.")
@click.option("--no-headers", is_flag=True, help="Remove its headers.")
@click.pass_obj
def set_(
    session: CliSession,
    /,
    name: str,
    payload: str | None,
    headers: tuple[tuple[str, str], ...],
    no_headers: bool,
    inherit: tuple[str, ...],
    **values: str | int | timedelta | dict[str, Any] | None,
) -> int:
    """Change what is given of a schedule. Its next tick follows a new time; the rest stays."""
    if headers and no_headers:
        raise click.UsageError("--header and --no-headers exclude each other")
    inherited = {name.replace("-", "_"): None for name in inherit}
    if both := [name for name in inherit if values[name.replace("-", "_")] is not None]:
        raise click.UsageError(f"--{both[0]} and --inherit {both[0]} exclude each other")
    changes: dict[str, Any] = {column: value for column, value in values.items() if value is not None}
    changes |= {column: changes[column] or None for column in ("key", "channel") if column in changes}
    changes |= {**own_policy_columns(values), **inherited}
    changes |= {"payload": _payload(payload)} if payload is not None else {}
    changes |= {"headers": encode(dict(headers)) if headers else None} if headers or no_headers else {}
    if not changes:
        raise click.UsageError("nothing to change: give an option, like --cron")
    with session.connect() as conn:
        if not run(conn, change_schedule(name, changes)):
            return _missing(session, name)
        code = _show(session, conn, name)
        found = run(conn, find_schedule(name))
    if found is not None and found.declared_by is not None:
        session.note(f"{name} is declared by {found.declared_by}: the next `pgrouse migrate` sets it as it is there")
    return code


@schedule.command("list")
@click.pass_obj
def list_schedules(session: CliSession) -> None:
    """List the schedules."""
    with session.connect() as conn:
        found, clock = run(conn, find_schedules()), run(conn, now())
        shown = [_listed(session, conn, each, clock) for each in found]
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
    session.rows(columns, shown, "no schedule: add one with `pgrouse schedule add`")


def _listed(session: CliSession, conn: psycopg.Connection, found: Schedule, clock: datetime) -> dict[str, Any]:
    """Return a row of the list: for people with times from now, as JSON with all that is known."""
    if session.as_json:
        return _as_json(found) | {"next_ticks": _next_ticks(conn, found)}
    next_tick = found.next_tick if found.paused_at is None else None
    return asdict(found) | {"until": _ago(next_tick, clock), "since": _ago(found.last_fired_at, clock)}


@schedule.command()
@click.argument("name")
@click.pass_obj
def show(session: CliSession, name: str) -> int:
    """Show a schedule, its next five ticks and its last ten runs."""
    with session.connect() as conn:
        return _show(session, conn, name)


@schedule.command()
@click.argument("name")
@click.option("--reason", metavar="TEXT", help="The reason, shown to other operators.")
@click.pass_obj
def pause(session: CliSession, name: str, reason: str | None) -> None:
    """Pause a schedule until it is resumed. The ticks in between are skipped."""
    was_on = session.run(schedule_calls.pause_schedule(name, reason))
    said = f"{name} is paused" if was_on else f"{name} was paused already"
    session.done(said, name=name, was="on" if was_on else "paused")


@schedule.command()
@click.argument("name")
@click.pass_obj
def resume(session: CliSession, name: str) -> None:
    """Resume a paused schedule with its next tick."""
    was_paused = session.run(schedule_calls.resume_schedule(name))
    said = f"{name} goes on" if was_paused else f"{name} was not paused"
    session.done(said, name=name, was="paused" if was_paused else "on")


@schedule.command("run-now")
@click.argument("name")
@click.pass_obj
def run_now(session: CliSession, name: str) -> int:
    """Publish the message of a schedule now, and print its id. Its ticks stay as they are."""
    published = session.run(schedule_calls.run_schedule(name))
    has_key = f"message {published.id} has the key of this schedule: nothing was published"
    problem = has_key if published.id else "the topic is full and drops messages: nothing was published"
    is_published = published.outcome == "published"
    return session.result(is_published, str(published.id), problem, name=name, **asdict(published))


@schedule.command()
@click.argument("name")
@click.pass_obj
def remove(session: CliSession, name: str) -> int:
    """Remove a schedule and the history of its runs. Messages that it published stay."""
    if not session.run(delete_schedule(name)):
        return _missing(session, name)
    session.done(f"{name} is removed", name=name, removed=True)
    return ExitCode.OK


def _next_ticks(conn: psycopg.Connection, found: Schedule) -> list[datetime]:
    """Return the next ticks; none of a schedule that is paused or cannot tick."""
    if found.paused_at is not None:
        return []
    try:
        return run(conn, schedule_calls.next_ticks(found.cron, found.time_zone, NEXT))
    except errors.InvalidParameterValue:  # its last_error says why
        return []


def _show(session: CliSession, conn: psycopg.Connection, name: str) -> int:
    found = run(conn, find_schedule(name))
    if found is None:
        return _missing(session, name)
    runs = run(conn, last_runs(name, RUNS))
    ticks = _next_ticks(conn, found)
    if session.as_json:
        session.record(_as_json(found) | {"next_ticks": ticks, "runs": [asdict(each) for each in runs]})
        return ExitCode.OK
    local = run(conn, local_times(ticks, found.time_zone))
    _print(session, found, list(zip(ticks, local, strict=True)), runs, run(conn, now()))
    return ExitCode.OK


def _as_json(found: Schedule) -> dict[str, Any]:
    row = asdict(found)
    texts = {name: row.pop(f"{name}_json") for name in ("payload", "headers", "backoff")}
    return row | {name: None if text is None else Raw(text) for name, text in texts.items()}


def _print(
    session: CliSession,
    found: Schedule,
    ticks: list[tuple[datetime, str]],
    runs: list[PastRun],
    clock: datetime,
) -> None:
    """Print a schedule for people: what it is, when it is next, what it did."""
    session.say(f"schedule {found.name}  {found.state}")
    facts = {
        "cron": f"{found.cron} ({found.time_zone})",
        "topic": found.topic,
        "channel": found.channel,
        "key": found.key,
        "priority": found.priority,
        "attempts": found.max_attempts,
        "timeout": found.timeout and show_age(found.timeout),
        "backoff": found.backoff_json,
        "retention": found.retention and show_age(found.retention),
        "payload": found.payload_json,
        "headers": found.headers_json,
        "jitter": show_age(found.jitter) if found.jitter else None,
        "declared": found.declared_by and f"by {found.declared_by}",
        "missed": found.missed + (f", {found.missed_limit} at most" if found.missed == "all" else ""),
        "on pause": "skips ticks while the topic is paused" if found.while_paused == "skip" else None,
        "paused": found.paused_at
        and f"{_ago(found.paused_at, clock)} by {found.paused_by}: {found.paused_reason or 'no reason given'}",
        "error": found.last_error and f"{found.last_error} (tried again {_ago(found.retry_at, clock)})",
    }
    lines = [(label, value) for label, value in facts.items() if value is not None]
    lines += [("next" if n == 0 else "", f"{local} ({_ago(at, clock)})") for n, (at, local) in enumerate(ticks)]
    lines += [("last" if n == 0 else "", _run(each, clock)) for n, each in enumerate(runs)]
    for label, value in lines:
        session.say(f"  {label:<10}{value}")


def _run(each: PastRun, clock: datetime) -> str:
    message = "" if each.message_id is None else f" message {each.message_id}"
    by = f" by {each.run_by}" if each.run_by else ""
    # A run by hand has no tick.
    tick = "" if each.run_by else f", of {_moment(each.tick)}"
    missed = f", none since {_moment(each.missed_from)}" if each.missed_from else ""
    state = f" ({each.state})" if each.state else ""
    return f"{each.outcome}{message}{state}{by} {_ago(each.fired_at, clock)}{tick}{missed}"


def _moment(at: datetime) -> str:
    return f"{at.astimezone():%Y-%m-%d %H:%M:%S%z}"


def _ago(at: datetime | None, clock: datetime) -> str | None:
    return None if at is None else show_ago(clock - at)


def _missing(session: CliSession, name: str) -> int:
    session.problem(f"there is no schedule {name}: see `pgrouse schedule list`")
    return ExitCode.FOUND_A_PROBLEM
