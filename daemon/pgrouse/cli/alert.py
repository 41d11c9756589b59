"""`pgrouse alert`: whom dead messages and other trouble are told, what was told, and who wants silence."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from pgrouse.cli.command import Group, Session
from pgrouse.cli.output import Column, plural, show_age, show_ago
from pgrouse.cli.param_types import DURATION, MOMENT
from pgrouse.error_line import last_line
from pgrouse.errors import ConfigError, ExitCode

if TYPE_CHECKING:
    import psycopg

    from pgrouse.config.alerts import AlertSink

INCIDENTS = """
  SELECT i.sink, i.kind, i.topic, i.result, i.error_fingerprint,
         CASE WHEN i.state <> 'over' AND silenced.until IS NOT NULL THEN 'silenced' ELSE i.state END AS state,
         i.count, i.pending, i.silenced, i.told, i.told_at, i.escalated_at, i.due_at, i.first_at, i.last_at,
         i.first_message_id, i.last_message_id, i.sample_error, i.mend, clock_timestamp() - i.last_at AS age
  FROM messages.alert_incident AS i
  CROSS JOIN LATERAL (SELECT messages.silenced_until(i.kind, i.topic, i.error_fingerprint) AS until) AS silenced
  WHERE (%(sink)s::text IS NULL OR i.sink = %(sink)s) AND (%(all)s OR i.state <> 'over')
  ORDER BY i.last_at DESC, i.sink LIMIT %(limit)s"""
SINKS = """
  SELECT s.name, s.type,
         CASE
           WHEN s.failing_since IS NOT NULL THEN 'failing'
           WHEN s.seen_at < clock_timestamp() - interval '1 minute' THEN 'nobody delivers'
           ELSE 'ok'
         END AS state,
         s.held_by, s.seen_at, s.delivered_at, s.failing_since, s.failures,
         CASE WHEN s.failing_since IS NOT NULL THEN s.last_error END AS last_error,
         waiting.messages AS waiting, waiting.since AS waiting_since, aside.messages AS put_aside,
         clock_timestamp() - s.delivered_at AS age
  FROM messages.alert_sink AS s
  CROSS JOIN LATERAL (
    SELECT count(*) AS messages, min(d.created_at) AS since FROM messages.alert_delivery AS d
    WHERE d.sink = s.name AND d.delivered_at IS NULL AND d.put_aside_at IS NULL) AS waiting
  CROSS JOIN LATERAL (
    SELECT count(*) AS messages FROM messages.alert_delivery AS d
    WHERE d.sink = s.name AND d.put_aside_at IS NOT NULL) AS aside
  ORDER BY s.name"""
SILENCES = """
  SELECT s.id, s.kind, s.topic, s.error_fingerprint, s.until, s.why, s.created_at, s.created_by,
         s.until - clock_timestamp() AS ends_in
  FROM messages.silence AS s
  WHERE s.ended_at IS NULL AND s.until > clock_timestamp()
  ORDER BY s.until"""
BOUNDS = (
    "backlog_age",
    "no_worker_for",
    "dead_per_hour",
    "listener_for",
    "cron_age",
    "snapshot_age",
    "undelivered_for",
)
CONDITIONS = "SELECT c.*, clock_timestamp() - c.since AS age FROM messages.conditions() AS c"


@click.group(cls=Group)
def alert() -> None:
    """Deliver alerts, see what was told, silence what is known."""


@alert.command()
@click.pass_obj
def run(session: Session) -> int:
    """Deliver alerts and do nothing else, until stopped.

    Daemons whose configuration names sinks deliver by themselves; any number may, and one of them has a sink at a time.
    """
    session.overrides["log"] = {"format": "json" if session.as_json else None}
    config = session.config
    _refuse_without_sinks(config.alerts.to)
    from pgrouse import log  # noqa: PLC0415
    from pgrouse.alerts import process  # noqa: PLC0415
    from pgrouse.alerts.validate import check  # noqa: PLC0415

    check(config)
    log.setup(config)
    return process.run(config)


def _refuse_without_sinks(sinks: list[AlertSink]) -> None:
    if not sinks:
        raise ConfigError("no sink is configured: add a table [[alerts.to]] with a name and an address to pgrouse.toml")


@alert.command()
@click.argument("sink", required=False)
@click.pass_obj
def test(session: Session, sink: str | None) -> int:
    """Send a marked message to the sinks, and say what came back.

    To every one, or to SINK. Exit code 1 if one did not arrive. It goes there directly, not by way of the database: it tests the sink and its settings.
    """
    sinks = session.config.alerts.to
    _refuse_without_sinks(sinks)
    chosen = [each for each in sinks if sink in (None, each.name)]
    if not chosen:
        raise click.UsageError(f"there is no sink '{sink}'; there are: {', '.join(each.name for each in sinks)}")
    worked = [_try(session, each) for each in chosen]
    return ExitCode.OK if all(worked) else ExitCode.FOUND_A_PROBLEM


def _try(session: Session, settings: AlertSink) -> bool:
    """Send one sink its test; return whether it arrived."""
    from pgrouse.config import dsn  # noqa: PLC0415
    from pgrouse.alerts import secret, sink, sinks  # noqa: PLC0415
    from pgrouse.alerts.notice import Place, trial_notice  # noqa: PLC0415

    place = Place(environment=session.config.alerts.environment, dashboard=session.config.web.url)
    notice = trial_notice(settings.name, settings.title, settings.body, place)
    try:
        said, arrived = sinks.make(settings).send(notice, settings.timeout.total_seconds()), True
    except (sink.SendFailed, ConfigError) as error:
        said, arrived = dsn.redact(str(error), secret.secrets(settings)), False
    except Exception as error:  # noqa: BLE001 - what a sink's library raises is what came back
        said, arrived = dsn.redact(f"{type(error).__name__}: {error}", secret.secrets(settings)), False
    if session.as_json:
        session.output.record(
            {"sink": settings.name, "type": settings.type, "id": notice.id, "arrived": arrived, "answer": said}
        )
    elif arrived:
        session.output.say(f"{settings.name}: arrived ({said})")
    else:
        session.output.problem(f"{settings.name}: did not arrive: {said}")
    return arrived


@alert.command("list")
@click.option("--sink", help="Only what is told to this sink.")
@click.option("--all", "over", is_flag=True, help="Also what is over; it is kept for a week.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="At most so many.")
@click.pass_obj
def list_incidents(session: Session, sink: str | None, over: bool, limit: int) -> None:
    """List what goes on, by sink and group.

    How many, since when, and how many of them nobody was told of yet.
    """
    rows = _read(session, INCIDENTS, {"sink": sink, "all": over, "limit": limit})
    colours = {"firing": "red", "silenced": "dim", "resolved": "green", "over": "green"}
    columns = [
        Column("SINK", "sink", wide=True),
        Column("STATE", "state", style=lambda state: colours[state]),
        Column("KIND", "kind"),
        Column("TOPIC", "topic", wide=True),
        Column("RESULT", "result", optional=True),
        Column("FINGERPRINT", "error_fingerprint", optional=True, spare=True),
        Column("COUNT", "count", "{:,}".format, right=True),
        Column("UNTOLD", "pending", "{:,}".format, right=True),
        Column("LAST", "age", show_ago),
        Column("ERROR", "sample_error", last_line, wide=True, optional=True),
    ]
    session.output.rows(columns, rows, "nothing goes on that a sink would be told of")


@alert.command()
@click.pass_obj
def sinks(session: Session) -> int:
    """List the sinks, and whether they take what they are sent.

    As the database knows them. Exit code 1 if one does not, or if nobody delivers to it.
    """
    rows = _read(session, SINKS, {})
    columns = [
        Column("SINK", "name", wide=True),
        Column("TYPE", "type"),
        Column("STATE", "state", style=lambda state: "green" if state == "ok" else "red"),
        Column("DELIVERED", "age", show_ago),
        Column("WAITING", "waiting", right=True),
        Column("PUT ASIDE", "put_aside", right=True),
        Column("BY", "held_by", wide=True, spare=True),
        Column("ERROR", "last_error", wide=True, optional=True),
    ]
    session.output.rows(columns, rows, "no sink: add a table [[alerts.to]] to pgrouse.toml, and start a daemon")
    return ExitCode.FOUND_A_PROBLEM if any(row["state"] != "ok" for row in rows) else ExitCode.OK


@alert.command()
@click.pass_obj
def conditions(session: Session) -> int:
    """List what is wrong now, and how to mend it. Exit code 1 if anything is."""
    rows = _read(session, CONDITIONS, {})
    columns = [
        Column("KIND", "kind", style=lambda _: "red"),
        Column("TOPIC", "topic", wide=True, optional=True),
        Column("FOR", "age", show_age, right=True),
        Column("WHAT", "what", folds=True, wide=True),
        Column("MEND", "mend", folds=True, wide=True),
    ]
    session.output.rows(columns, rows, "nothing is wrong, as far as the database can tell")
    return ExitCode.FOUND_A_PROBLEM if rows else ExitCode.OK


@alert.command()
@click.argument("topic", required=False)
@click.option(
    "--set",
    "given",
    multiple=True,
    metavar="BOUND=VALUE",
    help="Like backlog_age=10m or dead_per_hour=50; 0 lifts it, an empty value takes the default.",
)
@click.pass_obj
def bounds(session: Session, topic: str | None, given: tuple[str, ...]) -> None:
    """Show or set from when on something is wrong.

    Of TOPIC; * stands for the defaults and for what is about no topic.

    \b
    pgrouse alert bounds import.nightly --set backlog_age=6h --set dead_per_hour=1000
    """  # noqa: D301 - click reads the real \b
    if given and topic is None:
        raise click.UsageError("--set needs a topic; * stands for the defaults")
    wanted = dict(_bound(each) for each in given)
    with session.connect() as conn:
        if wanted:
            _set_bounds(conn, topic, wanted)
    rows = _read(
        session,
        "SELECT b.* FROM messages.alert_bound AS b WHERE %(topic)s::text IS NULL OR b.topic = %(topic)s ORDER BY b.topic",
        {"topic": topic},
    )
    columns = [
        Column("TOPIC", "topic", wide=True),
        *(Column(name.replace("_", " ").upper(), name, show_bound, right=True) for name in BOUNDS),
    ]
    session.output.rows(columns, rows, f"{topic} has no bounds of its own: those of * hold")


def show_bound(value: timedelta | int) -> str:
    """Write a bound; one that is lifted as a word."""
    if not value:
        return "lifted"
    return show_age(value) if isinstance(value, timedelta) else f"{value:,}"


def _bound(text: str) -> tuple[str, timedelta | int | None]:
    """Read a bound as it is typed."""
    from pgrouse.config.duration import parse  # noqa: PLC0415

    name, equals, value = text.partition("=")
    if name not in BOUNDS or not equals:
        raise click.UsageError(f"expected a bound like backlog_age=10m, found '{text}'; there are: {', '.join(BOUNDS)}")
    try:
        return name, (int(value) if name == "dead_per_hour" else parse(value)) if value else None
    except ValueError as error:
        raise click.UsageError(f"{name}: {error}") from None


def _set_bounds(conn: psycopg.Connection, topic: str | None, wanted: dict[str, timedelta | int | None]) -> None:
    names = ", ".join(wanted)
    changes = ", ".join(f"{name} = excluded.{name}" for name in wanted)
    places = ", ".join(f"%({name})s" for name in wanted)
    # An INSERT is checked as a whole row, and the defaults have to be whole: those are only ever changed.
    if topic == "*":
        changes = ", ".join(f"{name} = %({name})s" for name in wanted)
        statement = f"UPDATE messages.alert_bound SET {changes} WHERE topic = '*'"  # noqa: S608 - constants only
    else:
        statement = f"INSERT INTO messages.alert_bound (topic, {names}) VALUES (%(topic)s, {places}) ON CONFLICT (topic) DO UPDATE SET {changes}"  # noqa: S608
    conn.execute(statement.encode(), {"topic": topic, **wanted})


@alert.group(cls=Group)
def silence() -> None:
    """Let nobody be told of what is known."""


@silence.command("add")
@click.option("--topic", help="A topic, or a pattern like 'orders.*'.")
@click.option("--kind", help="dead_message, breaker, or the kind of a condition.")
@click.option("--fingerprint", help="The fingerprint of an error, as `pgrouse dead group` shows it.")
@click.option("--for", "for_", type=DURATION, help="For how long, like 2h.")
@click.option("--until", type=MOMENT, help="Until when, in ISO 8601 with its time zone.")
@click.option("--why", help="Why, for whoever sees it.")
@click.pass_obj
def add_silence(
    session: Session,
    topic: str | None,
    kind: str | None,
    fingerprint: str | None,
    for_: timedelta | None,
    until: datetime | None,
    why: str | None,
) -> None:
    """Tell nobody of alerts that match all that is given.

    Prints the number of this silence. They are counted meanwhile. What still goes on when it ends is told then.

    \b
    pgrouse alert silence add --topic 'import.*' --for 2h --why 'the supplier is down'
    """  # noqa: D301 - click reads the real \b
    if (for_ is None) == (until is None):
        raise click.UsageError("give --for or --until, one of them")
    if topic is kind is fingerprint is None:
        raise click.UsageError("give --topic, --kind or --fingerprint; --topic '*' is every topic")
    with session.connect() as conn:
        row = conn.execute(
            "SELECT messages.silence(%s, %s, %s, %s, %s, %s)", [kind, topic, fingerprint, for_, until, why]
        ).fetchone()
    number = row[0] if row else None
    session.output.record({"id": number}) if session.as_json else session.output.say(str(number))


@silence.command("list")
@click.pass_obj
def list_silences(session: Session) -> None:
    """List the silences that last."""
    columns = [
        Column("ID", "id", right=True),
        Column("KIND", "kind", optional=True),
        Column("TOPIC", "topic", wide=True, optional=True),
        Column("FINGERPRINT", "error_fingerprint", optional=True),
        Column("ENDS IN", "ends_in", show_age, right=True),
        Column("BY", "created_by"),
        Column("WHY", "why", wide=True),
    ]
    session.output.rows(columns, _read(session, SILENCES, {}), "no silence")


@silence.command("remove")
@click.argument("number", type=click.IntRange(1), metavar="ID")
@click.pass_obj
def remove_silence(session: Session, number: int) -> int:
    """End a silence before its time."""
    with session.connect() as conn:
        removed = conn.execute("SELECT messages.unsilence(%s)", [number]).fetchone() == (True,)
    return _done(
        session, removed, f"silence {number} is over", f"there is no silence {number}, or it is over", id=number
    )


@alert.command()
@click.option("--sink", help="Only to this sink. Default: to every one what it was sent.")
@click.option("--since", type=DURATION, default="1h", show_default=True, help="What was written in this time.")
@click.option("--id", "message_id", type=click.UUID, help="The message of this id, whenever it was.")
@click.pass_obj
def replay(session: Session, sink: str | None, since: timedelta, message_id: Any) -> int:
    """Send messages to sinks once more.

    What was delivered, and what was put aside. Each has an id of its own and says that it is sent again. Exit code 1 if there is none.
    """
    with session.connect() as conn:
        row = conn.execute("SELECT messages.replay_alerts(%s, %s, %s)", [sink, since, message_id]).fetchone()
    count = row[0] if row else 0
    return _done(
        session, count > 0, f"{plural(count, 'message')} will be sent again", "there is no such message", messages=count
    )


@alert.command()
@click.argument("sink")
@click.pass_obj
def forget(session: Session, sink: str) -> int:
    """Forget a sink that no configuration names any more."""
    with session.connect() as conn:
        known = conn.execute("SELECT messages.forget_sink(%s)", [sink]).fetchone() == (True,)
    return _done(session, known, f"{sink} is forgotten", f"there is no sink '{sink}'", sink=sink)


def _read(session: Session, query: str, values: dict[str, Any]) -> list[dict[str, Any]]:
    from psycopg.rows import dict_row  # noqa: PLC0415

    with session.read() as conn:
        return conn.cursor(row_factory=dict_row).execute(query.encode(), values).fetchall()


def _done(session: Session, found: bool, text: str, problem: str, **values: Any) -> int:
    if session.as_json:
        session.output.record({**values, "found": found})
    elif found:
        session.output.say(text)
    if not found:
        session.output.problem(problem)
    return ExitCode.OK if found else ExitCode.FOUND_A_PROBLEM
