"""`pgrouse alert`: deliver alerts, list them, silence them."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import click

from pgrouse.alerts.notice import QueueInfo, make_test_notice
from pgrouse.alerts.sink import SendFailed
from pgrouse.alerts.sinks import read_sinks
from pgrouse.alerts.validate import validate_sinks
from pgrouse.client.call import run as run_call
from pgrouse.client.calls.monitoring import alert as alert_calls
from pgrouse.client.queries.alert import (
    THRESHOLDS,
    find_incidents,
    find_silences,
    find_sinks,
    find_thresholds,
    read_threshold,
    set_thresholds,
)
from pgrouse.client.queries.clock import now
from pgrouse.config import dsn
from pgrouse.errors import ConfigError, ExitCode
from pgrouse.terminal.command import CliSession, CommandGroup
from pgrouse.terminal.param_types import DURATION, TIMESTAMP
from pgrouse.terminal.table import Column
from pgrouse.values.error_line import last_line
from pgrouse.values.format import plural, show_age, show_ago

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgrouse.alerts.sink import SinkTable
    from pgrouse.config.alerts import AlertSink


@click.group(cls=CommandGroup)
def alert() -> None:
    """Deliver alerts, list them, silence known ones."""


@alert.command()
@click.pass_obj
def run(session: CliSession) -> int:
    """Deliver alerts and do nothing else, until stopped.

    Daemons whose configuration names sinks deliver by themselves; any number may, and one of them has a sink at a time.
    """
    session.overrides["log"] = {"format": "json" if session.as_json else None}
    config = session.config
    _refuse_without_sinks(config.alerts.to)

    from pgrouse.alerts import process  # noqa: PLC0415 - slow to import: the loops of a process
    from pgrouse.logging import log  # noqa: PLC0415 - slow to import: no other command logs

    validate_sinks(config)
    log.setup(config)
    return process.run(config)


def _refuse_without_sinks(sinks: Sequence[AlertSink]) -> None:
    if not sinks:
        raise ConfigError("no sink is configured: add a table [[alerts.to]] with a name and an address to pgrouse.toml")


@alert.command()
@click.argument("sink", required=False)
@click.pass_obj
def test(session: CliSession, sink: str | None) -> int:
    """Send a test message to the sinks, and print the answers.

    To all sinks, or to SINK. Exit code 1 if one did not arrive. The message is sent directly, not through the database:
    this tests the sink and its settings.
    """
    sinks = read_sinks(session.config)
    _refuse_without_sinks(sinks)
    chosen = [each for each in sinks if sink in (None, each.name)]
    if not chosen:
        raise click.UsageError(f"there is no sink '{sink}'; there are: {', '.join(each.name for each in sinks)}")
    worked = [_try(session, each) for each in chosen]
    return ExitCode.OK if all(worked) else ExitCode.FOUND_A_PROBLEM


def _try(session: CliSession, settings: SinkTable) -> bool:
    """Send the test message to one sink; return whether it arrived."""
    queue = QueueInfo(environment=session.config.alerts.environment, dashboard=session.config.web.url)
    notice = make_test_notice(settings.name, settings.title, settings.body, queue)
    try:
        said, arrived = settings.send(notice, settings.timeout.total_seconds()), True
    except (SendFailed, ConfigError) as error:
        said, arrived = dsn.redact(str(error), settings.secrets()), False
    except Exception as error:  # noqa: BLE001 - what a sink's library raises is what came back
        said, arrived = dsn.redact(f"{type(error).__name__}: {error}", settings.secrets()), False
    facts = {"sink": settings.name, "type": settings.type, "id": notice.id, "arrived": arrived, "answer": said}
    session.record(facts)
    if arrived:
        session.say(f"{settings.name}: arrived ({said})")
    elif not session.as_json:
        session.problem(f"{settings.name}: did not arrive: {said}")
    return arrived


@alert.command("list")
@click.option("--sink", metavar="NAME", help="Only alerts of this sink.")
@click.option("--all", "over", is_flag=True, help="Also alerts that are over; they are kept for a week.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="The maximum number.")
@click.pass_obj
def list_incidents(session: CliSession, sink: str | None, over: bool, limit: int) -> None:
    """List the current alerts, by sink and group.

    With their number of messages, since when, and how many are not sent yet.
    """
    rows = session.read_rows(find_incidents(sink, over=over, most=limit))
    colours = {"firing": "red", "silenced": "dim", "resolved": "green", "over": "green"}
    columns = [
        Column("SINK", "sink", wide=True),
        Column("STATE", "state", style=lambda state: colours[state]),
        Column("SEVERITY", "severity", spare=True),
        Column("KIND", "kind"),
        Column("TOPIC", "topic", wide=True),
        Column("RESULT", "result", optional=True),
        Column("FINGERPRINT", "error_fingerprint", optional=True, spare=True),
        Column("COUNT", "count", "{:,}".format, right=True),
        Column("PENDING", "pending", "{:,}".format, right=True),
        Column("LAST", "age", show_ago),
        Column("ERROR", "sample_error", last_line, wide=True, optional=True),
    ]
    session.rows(columns, rows, "no alerts")


@alert.command()
@click.option("--all", "over", is_flag=True, help="Also incidents that ended in the last week.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="The maximum number.")
@click.pass_obj
def incidents(session: CliSession, over: bool, limit: int) -> None:
    """List incidents, one row for each cause, the worst first."""
    with session.read() as conn:
        clock, found = run_call(conn, now()), run_call(conn, alert_calls.incidents(over=over, limit=limit))
    colours = {"firing": "red", "silenced": "dim", "over": "green"}
    columns = [
        Column("STATE", "state", style=lambda state: colours[state]),
        Column("SEVERITY", "severity", spare=True),
        Column("KIND", "kind"),
        Column("TOPIC", "topic", wide=True, optional=True),
        Column("RESULT", "result", optional=True),
        Column("BEGAN", "began_at", lambda at: show_ago(clock - at)),
        Column("ENDED", "ended_at", lambda at: show_ago(clock - at), optional=True),
        Column("COUNT", "count", "{:,}".format, right=True, optional=True),
        Column("WHAT", "what", last_line, wide=True, optional=True),
        Column("FIX", "fix", wide=True, optional=True, spare=True),
    ]
    session.rows(columns, list(map(asdict, found)), "no incidents")


@alert.command()
@click.pass_obj
def sinks(session: CliSession) -> int:
    """List the sinks, and whether alerts reach them.

    From the database. Exit code 1 if a sink fails, or if no process delivers to it.
    """
    rows = session.read_rows(find_sinks())
    columns = [
        Column("SINK", "name", wide=True),
        Column("TYPE", "type"),
        Column("STATE", "state", style=lambda state: "green" if state == "ok" else "red"),
        Column("DELIVERED", "age", show_ago),
        Column("WAITING", "waiting", right=True),
        Column("ABANDONED", "abandoned", right=True),
        Column("BY", "held_by", wide=True, spare=True),
        Column("ERROR", "last_error", wide=True, optional=True),
    ]
    session.rows(columns, rows, "no sink: add a table [[alerts.to]] to pgrouse.toml, and start a daemon")
    return ExitCode.FOUND_A_PROBLEM if any(row["state"] != "ok" for row in rows) else ExitCode.OK


@alert.command()
@click.pass_obj
def conditions(session: CliSession) -> int:
    """List current problems, and how to fix them. Exit code 1 if there are any."""
    with session.read() as conn:
        clock, found = run_call(conn, now()), run_call(conn, alert_calls.conditions())
    rows = [asdict(each) | {"age": None if each.since is None else clock - each.since} for each in found]
    columns = [
        Column("KIND", "kind", style=lambda _: "red"),
        Column("TOPIC", "topic", wide=True, optional=True),
        Column("FOR", "age", show_age, right=True),
        Column("WHAT", "what", folds=True, wide=True),
        Column("FIX", "fix", folds=True, wide=True),
    ]
    session.rows(columns, rows, "no problems are known")
    return ExitCode.FOUND_A_PROBLEM if rows else ExitCode.OK


@alert.command()
@click.argument("topic", required=False)
@click.option(
    "--set",
    "given",
    multiple=True,
    metavar="THRESHOLD=VALUE",
    help="Like backlog_age=10m or dead_per_hour=50; 0 switches it off, an empty value takes the default.",
)
@click.pass_obj
def thresholds(session: CliSession, topic: str | None, given: tuple[str, ...]) -> None:
    """Show or set the thresholds of alerts.

    Of TOPIC; * stands for the defaults and for alerts without a topic.

    \b
    pgrouse alert thresholds import.nightly --set backlog_age=6h --set dead_per_hour=1000
    """  # noqa: D301 - click reads the real \b
    if given and topic is None:
        raise click.UsageError("--set needs a topic; * stands for the defaults")
    wanted = dict(_threshold(each) for each in given)
    if topic is not None and wanted:
        session.run(set_thresholds(topic, wanted))
    rows = session.read_rows(find_thresholds(topic))
    columns = [
        Column("TOPIC", "topic", wide=True),
        *(Column(name.replace("_", " ").upper(), name, show_threshold, right=True) for name in THRESHOLDS),
    ]
    session.rows(columns, rows, f"{topic} has no thresholds of its own: those of * apply")


def show_threshold(value: timedelta | int) -> str:
    """Format a threshold; one that is switched off as a word."""
    if not value:
        return "none"
    return show_age(value) if isinstance(value, timedelta) else f"{value:,}"


def _threshold(text: str) -> tuple[str, timedelta | int | None]:
    """Read a threshold as it is typed."""
    name, equals, value = text.partition("=")
    if name not in THRESHOLDS or not equals:
        raise click.UsageError(
            f"expected a threshold like backlog_age=10m, found '{text}'; there are: {', '.join(THRESHOLDS)}"
        )
    try:
        return name, read_threshold(name, value)
    except ValueError as error:
        raise click.UsageError(f"{name}: {error}") from None


@alert.group(cls=CommandGroup)
def silence() -> None:
    """Silence known alerts."""


@silence.command("add")
@click.option("--topic", help="A topic, or a pattern like 'orders.*'.")
@click.option("--kind", help="dead_message, breaker, or the kind of a condition.")
@click.option("--fingerprint", metavar="HEX", help="The fingerprint of an error, as `pgrouse dead group` shows it.")
@click.option("--for", "for_", type=DURATION, help="For how long, like 2h.")
@click.option("--until", type=TIMESTAMP, help="Until when, in ISO 8601 with its time zone.")
@click.option("--reason", metavar="TEXT", help="The reason, shown to other operators.")
@click.pass_obj
def add_silence(
    session: CliSession,
    topic: str | None,
    kind: str | None,
    fingerprint: str | None,
    for_: timedelta | None,
    until: datetime | None,
    reason: str | None,
) -> None:
    """Silence the alerts that match all given options.

    Prints the number of the silence. Silenced alerts are still counted. Those that are not over when it ends are sent
    then.

    \b
    pgrouse alert silence add --topic 'import.*' --for 2h --reason 'the supplier is down'
    """  # noqa: D301 - click reads the real \b
    if (for_ is None) == (until is None):
        raise click.UsageError("give --for or --until, one of them")
    if topic is kind is fingerprint is None:
        raise click.UsageError("give --topic, --kind or --fingerprint; --topic '*' is every topic")
    number = session.run(alert_calls.silence(kind, topic, fingerprint, for_, until, reason))
    session.done(str(number), id=number)


@silence.command("list")
@click.pass_obj
def list_silences(session: CliSession) -> None:
    """List the active silences."""
    columns = [
        Column("ID", "id", right=True),
        Column("KIND", "kind", optional=True),
        Column("TOPIC", "topic", wide=True, optional=True),
        Column("FINGERPRINT", "error_fingerprint", optional=True),
        Column("ENDS IN", "ends_in", show_age, right=True),
        Column("BY", "created_by"),
        Column("REASON", "reason", wide=True),
    ]
    session.rows(columns, session.read_rows(find_silences()), "no silence")


@silence.command("remove")
@click.argument("number", type=click.IntRange(1), metavar="ID")
@click.pass_obj
def remove_silence(session: CliSession, number: int) -> int:
    """End a silence early."""
    removed = session.run(alert_calls.unsilence(number))
    said, problem = f"silence {number} is over", f"there is no silence {number}, or it is over"
    return session.result(removed, said, problem, id=number, found=removed)


@alert.command()
@click.option("--sink", metavar="NAME", help="Only to this sink. Default: to all.")
@click.option("--since", type=DURATION, default="1h", show_default=True, help="Alerts written in this time.")
@click.option("--id", "message_id", metavar="ID", type=click.UUID, help="The alert with this id, however old it is.")
@click.pass_obj
def replay(session: CliSession, sink: str | None, since: timedelta, message_id: UUID | None) -> int:
    """Send alerts to sinks again.

    Delivered and abandoned ones. Each has a new id and is marked as sent again. Exit code 1 if there is none.
    """
    count = session.run(alert_calls.replay_alerts(sink, since, message_id))
    said, problem = f"{plural(count, 'message')} will be sent again", "there is no such message"
    return session.result(count, said, problem, messages=count, found=count > 0)


@alert.command()
@click.argument("sink")
@click.pass_obj
def forget(session: CliSession, sink: str) -> int:
    """Delete a sink that no configuration names any more."""
    known = session.run(alert_calls.delete_sink(sink))
    said, problem = f"{sink} is deleted", f"there is no sink '{sink}'"
    return session.result(known, said, problem, sink=sink, found=known)
