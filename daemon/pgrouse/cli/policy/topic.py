"""`pgrouse topic`: the policies of topics and channels, and their pauses."""

from __future__ import annotations

import shlex
from datetime import datetime, timedelta
from typing import Any

import click
import psycopg

from pgrouse.cli.policy.arguments import PolicyCommand, PolicySettingType, assignments, read_policy
from pgrouse.cli.policy.difference import apply_configuration, apply_policies
from pgrouse.cli.policy.topic_view import pause_as_json, read_policy_view, show_policy
from pgrouse.client.call import run
from pgrouse.client.calls import operate
from pgrouse.client.calls.monitoring.state import TopicState, topic_state
from pgrouse.client.queries.topic import count_waiting, find_policies, remove_policy
from pgrouse.config.policy.topic_policy import DEFAULTS, DesiredPolicy, show_setting
from pgrouse.terminal.bulk import BOUND, YES, ask_to_delete
from pgrouse.terminal.command import READ_TIMEOUT, CliSession, CommandGroup
from pgrouse.terminal.param_types import DURATION, TIMESTAMP
from pgrouse.terminal.table import Column
from pgrouse.values.format import plural

CHANNEL = click.option("--channel", metavar="CHANNEL", help="One channel of the topic: concurrency, min_interval.")
DRY_RUN = click.option("--dry-run", is_flag=True, help="Only print what would change.")


@click.group(cls=CommandGroup)
def topic() -> None:
    """Show, set and pause the policies of topics.

    The topic '*' holds the defaults. 'orders.*' is for all topics with one level more than orders, 'orders.**' for
    those with any number of them. A change takes effect at once, without a restart.
    """


@topic.command("list")
@click.pass_obj
def list_topics(session: CliSession) -> None:
    """List the topics with their own policy, and what each sets."""
    with session.read() as conn:
        policies, states = run(conn, find_policies()), run(conn, topic_state())
    rows = [_summary(each, policies[each.topic]) for each in states if each.topic in policies]
    columns = [
        Column("TOPIC", "topic", wide=True),
        Column("STATE", "state"),
        Column("PAUSED", "paused", lambda pause: f"by {pause['by']}" if pause else "-", style=lambda _: "yellow"),
        Column("SETS", "policy", _in_one_line, wide=True),
    ]
    session.rows(columns, rows, "there is no policy: run `pgrouse migrate`")


def _summary(state: TopicState, policy: dict[str, Any]) -> dict[str, Any]:
    own = {setting: value for setting, value in policy.items() if value is not None}
    return {"topic": state.topic, "state": state.state, "paused": pause_as_json(state), "policy": own}


def _in_one_line(policy: dict[str, Any]) -> str:
    return " ".join(f"{setting}={show_setting(setting, value)}" for setting, value in policy.items()) or "nothing"


@topic.command()
@click.argument("topic_name", metavar="TOPIC")
@CHANNEL
@click.pass_obj
def show(session: CliSession, topic_name: str, channel: str | None) -> None:
    """Show the policy of a topic, setting by setting, and what is paused."""
    with session.read() as conn:
        view = read_policy_view(conn, topic_name, channel)
    show_policy(session, view)


@topic.command("set", cls=PolicyCommand)
@click.argument("topic_name", metavar="TOPIC")
@click.argument("given", nargs=-1, required=True, metavar="SETTING=VALUE...", type=PolicySettingType(assigned=True))
@CHANNEL
@DRY_RUN
@click.pass_obj
def set_(session: CliSession, topic_name: str, given: tuple[str, ...], channel: str | None, dry_run: bool) -> None:
    """Set policy settings of a topic, a channel, or ('*') the defaults.

    The value `inherit` means as the defaults; `none` means no limit, even if the defaults have one.
    `payload_schema=@FILE` reads a file. `backoff.kind` starts a new backoff; other parts like `backoff.base` keep the
    rest.
    """
    _put(session, topic_name, channel, assignments(given), dry_run=dry_run)


@topic.command()
@click.argument("topic_name", metavar="TOPIC")
@click.argument("settings", nargs=-1, required=True, metavar="SETTING...", type=PolicySettingType(assigned=False))
@CHANNEL
@DRY_RUN
@click.pass_obj
def unset(session: CliSession, topic_name: str, settings: tuple[str, ...], channel: str | None, dry_run: bool) -> None:
    """Let a topic inherit settings again.

    In the defaults ('*') they are removed.
    """
    word = "none" if topic_name == DEFAULTS else "inherit"
    _put(session, topic_name, channel, dict.fromkeys(settings, word), dry_run=dry_run)


@topic.command()
@click.argument("topic_name", metavar="TOPIC")
@click.pass_obj
def reset(session: CliSession, topic_name: str) -> int:
    """Let a topic inherit all settings, and end its pause.

    Its messages, channels and subscriptions stay. Exit code 1 if it has nothing of its own.
    """
    if topic_name == DEFAULTS:
        raise click.UsageError("the defaults can only be changed: see `pgrouse topic set`")
    removed = session.run(remove_policy(topic_name))
    said, problem = "inherits the defaults", "has no policy of its own: see `pgrouse topic list`"
    return session.result(
        removed, f"topic {topic_name} {said}", f"topic {topic_name} {problem}", topic=topic_name, removed=removed
    )


def _put(session: CliSession, topic_name: str, channel: str | None, assigned: dict[str, str], *, dry_run: bool) -> None:
    policy = read_policy(topic_name, channel, assigned)
    wanted = DesiredPolicy(policy=policy) if channel is None else DesiredPolicy(channels={channel: policy})
    with session.connect() as conn:
        apply_policies(session, conn, {topic_name: wanted}, dry_run=dry_run)


@topic.command()
@DRY_RUN
@click.pass_obj
def apply(session: CliSession, dry_run: bool) -> None:
    """Write the configuration's policies and schedules.

    They are written into the database. Policies that it does not name stay as they are. Schedules that it does not have
    any more are removed.
    """
    if not session.config_with_code.policies and not session.config_with_code.schedules:
        session.note("the configuration has no policies: write settings into its [topics] tables")
    with session.connect() as conn:
        apply_configuration(session, conn, dry_run=dry_run)


@topic.command()
@click.argument("topic_name", metavar="TOPIC")
@CHANNEL
@click.option("--reason", metavar="TEXT", help="The reason, shown to other operators.")
@click.option("--for", "resume_in", type=DURATION, help="Resume automatically after this time, like 30m.")
@click.option("--until", type=TIMESTAMP, help="Resume automatically at this time, given with its zone.")
@click.pass_obj
def pause(
    session: CliSession,
    topic_name: str,
    channel: str | None,
    reason: str | None,
    resume_in: timedelta | None,
    until: datetime | None,
) -> None:
    """Stop a topic, one channel of it, or many topics.

    A pattern stops the topics that it matches, and '*' all topics. No worker starts their messages. Those that run
    already may end.
    """
    if resume_in is not None and until is not None:
        raise click.UsageError("--for and --until exclude each other")
    resume_at = session.run(operate.pause(topic_name, reason, resume_in, until, channel))
    end = f"until {resume_at.astimezone():%Y-%m-%d %H:%M:%S%z}" if resume_at else "until it is resumed"
    facts = {"topic": topic_name, "channel": channel, "paused": True, "resume_at": resume_at}
    session.done(f"paused {_name(topic_name, channel)} {end}", **facts)


@topic.command()
@click.argument("topic_name", metavar="TOPIC")
@CHANNEL
@click.pass_obj
def resume(session: CliSession, topic_name: str, channel: str | None) -> int:
    """End a pause. Exit code 1 if there was none."""
    was_paused = session.run(operate.resume(topic_name, channel))
    name = _name(topic_name, channel)
    problem = f"{name} is not paused: see `pgrouse topic show {shlex.quote(topic_name)}`"
    facts = {"topic": topic_name, "channel": channel, "was_paused": was_paused}
    return session.result(was_paused, f"resumed {name}", problem, **facts)


BATCH = 1_000  # messages in one transaction


@topic.command()
@click.argument("topic_name", metavar="TOPIC")
@click.option("--dry-run", is_flag=True, help="Only print how many would be deleted.")
@YES
@click.pass_obj
def purge(session: CliSession, topic_name: str, dry_run: bool, yes: bool) -> None:
    """Delete the waiting messages of a topic, without a trace.

    Running messages stay, and so do those published from now on. It works in short transactions, and can be
    interrupted.
    """
    with session.connect() as conn:
        with conn.transaction():
            conn.execute(READ_TIMEOUT)
            found, upto = run(conn, count_waiting(topic_name, BOUND))
        what = f"{'all, at least ' if found >= BOUND else ''}{plural(found, 'message')} of topic {topic_name}"
        if ask_to_delete(session, found, what, "no messages wait there", dry_run=dry_run, yes=yes):
            deleted = _purge(conn, topic_name, upto, found if found < BOUND else None)
            session.done(f"deleted {plural(deleted, 'message')}", deleted=deleted)


def _purge(conn: psycopg.Connection, topic_name: str, upto: int, most: int | None) -> int:
    """Delete waiting messages, batch by batch.

    most: no more than were confirmed; None: all, since the question said "all".
    """
    deleted = 0
    while most is None or deleted < most:
        limit = BATCH if most is None else min(BATCH, most - deleted)
        batch = run(conn, operate.purge_topic(topic_name, limit, upto))
        if not batch:
            break
        deleted += batch
    return deleted


def _name(topic_name: str, channel: str | None) -> str:
    return f"topic {topic_name}" if channel is None else f"channel {channel} of topic {topic_name}"
