"""`pgrouse topic`: the policies of topics and channels, and their pauses."""

from __future__ import annotations

import shlex
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from pgrouse.cli.command import READ_TIMEOUT, Group, Session
from pgrouse.cli.policy_args import KnobType, assignments, read_policy
from pgrouse.cli.output import Column, plural
from pgrouse.cli.param_types import DURATION, MOMENT
from pgrouse.errors import ExitCode

if TYPE_CHECKING:
    from typing import LiteralString

    import psycopg

CHANNEL = click.option("--channel", metavar="CHANNEL", help="One channel of the topic.")
DRY_RUN = click.option("--dry-run", is_flag=True, help="Only say what would change.")


@click.group(cls=Group)
def topic() -> None:
    """Show, set and pause the policies of topics.

    The topic '*' holds the defaults. A change holds at once; nothing is restarted.
    """


@topic.command("list")
@click.pass_obj
def list_topics(session: Session) -> None:
    """List the topics with a policy of their own, and what each sets."""
    from pgrouse.cli.policy_view import policies  # noqa: PLC0415

    with session.read() as conn:
        rows = [_summary(row) for row in policies(conn)]
    columns = [
        Column("TOPIC", "topic", wide=True),
        Column("PAUSED", "paused", lambda pause: f"by {pause['by']}" if pause else "-", style=lambda _: "yellow"),
        Column("SETS", "policy", _in_one_line, wide=True),
    ]
    session.output.rows(columns, rows, "there is no policy: run `pgrouse migrate`")


def _summary(row: dict[str, Any]) -> dict[str, Any]:
    from pgrouse.cli.policy_view import pause_of  # noqa: PLC0415
    from pgrouse.config.topic_policy import TopicPolicy  # noqa: PLC0415

    policy = {knob: row[knob] for knob in TopicPolicy.names() if row[knob] is not None}
    return {"topic": row["topic"], "paused": pause_of(row), "policy": policy}


def _in_one_line(policy: dict[str, Any]) -> str:
    from pgrouse.config.topic_policy import show_knob  # noqa: PLC0415

    return " ".join(f"{knob}={show_knob(knob, value)}" for knob, value in policy.items()) or "nothing"


@topic.command()
@click.argument("topic_name", metavar="TOPIC")
@CHANNEL
@click.pass_obj
def show(session: Session, topic_name: str, channel: str | None) -> None:
    """Show what holds for a topic, knob by knob, and what is paused."""
    from pgrouse.cli.policy_view import look, show_policy  # noqa: PLC0415

    with session.read() as conn:
        portrait = look(conn, topic_name, channel)
    show_policy(session, portrait)


@topic.command("set")
@click.argument("topic_name", metavar="TOPIC")
@click.argument("given", nargs=-1, required=True, metavar="KNOB=VALUE...", type=KnobType(assigned=True))
@CHANNEL
@DRY_RUN
@click.pass_obj
def set_(session: Session, topic_name: str, given: tuple[str, ...], channel: str | None, dry_run: bool) -> None:
    """Set knobs of a topic, of one channel, or ('*') of the defaults.

    `inherit` as a value: as the defaults say. `none`: no limit, also where the defaults have one. `payload_schema=@FILE` reads a file.
    `backoff.kind` begins a new backoff; other parts like `backoff.base` leave the rest as it is.
    """
    _put(session, topic_name, channel, assignments(given), dry_run=dry_run)


@topic.command()
@click.argument("topic_name", metavar="TOPIC")
@click.argument("knobs", nargs=-1, required=True, metavar="KNOB...", type=KnobType(assigned=False))
@CHANNEL
@DRY_RUN
@click.pass_obj
def unset(session: Session, topic_name: str, knobs: tuple[str, ...], channel: str | None, dry_run: bool) -> None:
    """Let a topic inherit knobs again.

    From the defaults ('*') they are taken away.
    """
    from pgrouse.config.topic_policy import DEFAULTS  # noqa: PLC0415

    word = "none" if topic_name == DEFAULTS else "inherit"
    _put(session, topic_name, channel, dict.fromkeys(knobs, word), dry_run=dry_run)


def _put(session: Session, topic_name: str, channel: str | None, assigned: dict[str, str], *, dry_run: bool) -> None:
    from pgrouse.cli.policy_diff import put  # noqa: PLC0415
    from pgrouse.config.topic_policy import Wanted  # noqa: PLC0415

    policy = read_policy(topic_name, channel, assigned)
    wanted = Wanted(policy=policy) if channel is None else Wanted(channels={channel: policy})
    with session.connect() as conn:
        put(session, conn, {topic_name: wanted}, dry_run=dry_run)


@topic.command()
@DRY_RUN
@click.pass_obj
def apply(session: Session, dry_run: bool) -> None:
    """Write the policies of the configuration into the database.

    What it does not name is left alone.
    """
    from pgrouse.cli.policy_diff import put  # noqa: PLC0415

    if not session.config.policies:
        session.output.note("the configuration names no policy: write knobs into its [topics] tables")
    with session.connect() as conn:
        put(session, conn, session.config.policies, dry_run=dry_run)


@topic.command()
@click.argument("topic_name", metavar="TOPIC")
@CHANNEL
@click.option("--why", metavar="TEXT", help="Is shown to whoever asks.")
@click.option("--for", "resume_in", type=DURATION, help="Resume by itself after this time, like 30m.")
@click.option("--until", type=MOMENT, help="Resume by itself at this time, given with its zone.")
@click.pass_obj
def pause(
    session: Session,
    topic_name: str,
    channel: str | None,
    why: str | None,
    resume_in: timedelta | None,
    until: datetime | None,
) -> None:
    """Stop a topic, one channel of it, or ('*') all topics.

    Nothing of it is begun, by any worker. What runs already may end.
    """
    if resume_in is not None and until is not None:
        raise click.UsageError("--for and --until exclude each other")
    with session.connect() as conn:
        row = conn.execute(
            "SELECT messages.pause(%s, %s, %s, %s, %s)", [topic_name, why, resume_in, until, channel]
        ).fetchone()
    resume_at: datetime | None = row[0] if row else None
    if session.as_json:
        session.output.record({"topic": topic_name, "channel": channel, "paused": True, "resume_at": resume_at})
    end = f"until {resume_at.astimezone():%Y-%m-%d %H:%M:%S%z}" if resume_at else "until it is resumed"
    session.output.say(f"paused {_name(topic_name, channel)} {end}")


@topic.command()
@click.argument("topic_name", metavar="TOPIC")
@CHANNEL
@click.pass_obj
def resume(session: Session, topic_name: str, channel: str | None) -> int:
    """End a pause. Exit code 1 if there was none."""
    with session.connect() as conn:
        row = conn.execute("SELECT messages.resume(%s, %s)", [topic_name, channel]).fetchone()
    was_paused = bool(row and row[0])
    if session.as_json:
        session.output.record({"topic": topic_name, "channel": channel, "was_paused": was_paused})
    if was_paused:
        session.output.say(f"resumed {_name(topic_name, channel)}")
        return ExitCode.OK
    session.output.problem(
        f"{_name(topic_name, channel)} is not paused: see `pgrouse topic show {shlex.quote(topic_name)}`"
    )
    return ExitCode.FOUND_A_PROBLEM


BOUND = 10_000  # counting stops here
COUNT = """
  SELECT count(*), coalesce(max(f.id), 0) FROM (
    SELECT m.id FROM messages.message AS m WHERE m.topic = %s AND m.claim_id IS NULL LIMIT %s) AS f"""
HIGHEST = "SELECT coalesce(max(m.id), 0) FROM messages.message AS m"


@topic.command()
@click.argument("topic_name", metavar="TOPIC")
@click.option("--dry-run", is_flag=True, help="Only say how many would be deleted.")
@click.option("--yes", is_flag=True, help="Do not ask: for scripts.")
@click.pass_obj
def purge(session: Session, topic_name: str, dry_run: bool, yes: bool) -> int:
    """Delete what waits in a topic, without a trace.

    What runs is left alone, and so is what is published from now on. It goes in short transactions, and can be interrupted.
    """
    with session.connect() as conn:
        with conn.transaction():
            conn.execute(READ_TIMEOUT)
            row: Any = conn.execute(COUNT, [topic_name, BOUND]).fetchone()
            highest: Any = conn.execute(HIGHEST).fetchone()
        found, upto = (row[0], row[1]) if row[0] < BOUND else (row[0], highest[0])
        what = f"{'all, at least ' if found >= BOUND else ''}{plural(found, 'message')} of topic {topic_name}"
        if dry_run or not found:
            return _would_purge(session, found, what)
        if not yes:
            click.confirm(f"delete {what} for good?", abort=True, err=True)
        return _purge(session, conn, topic_name, upto)


def _would_purge(session: Session, found: int, what: str) -> int:
    if session.as_json:
        session.output.record({"messages": found, "at_least": found >= BOUND})
    session.output.say(f"would delete {what}: run it again without --dry-run" if found else "nothing waits there")
    return ExitCode.OK


def _purge(session: Session, conn: psycopg.Connection, topic_name: str, upto: int) -> int:
    deleted = 0
    while batch := _value(conn, "SELECT messages.purge_topic(%s, p_upto => %s)", [topic_name, upto]):
        deleted += batch
    if session.as_json:
        session.output.record({"deleted": deleted})
    session.output.say(f"deleted {plural(deleted, 'message')}")
    return ExitCode.OK


def _value(conn: psycopg.Connection, query: LiteralString, values: list[Any]) -> int:
    row: Any = conn.execute(query, values).fetchone()
    return int(row[0])


def _name(topic_name: str, channel: str | None) -> str:
    return f"topic {topic_name}" if channel is None else f"channel {channel} of topic {topic_name}"
