"""`pgrouse publish`: messages from a shell."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import IO, TYPE_CHECKING, Any

import click

from pgrouse.cli.command import Command, Session
from pgrouse.cli.output import plural
from pgrouse.cli.parameter import DURATION, HEADER, MOMENT

if TYPE_CHECKING:
    from pgrouse.new_message import NewMessage


@click.command(cls=Command)
@click.argument("topic")
@click.argument("payload", required=False, metavar="[JSON | -]")
@click.option(
    "--body-file", type=click.File("rb"), help="Publish the bytes of a file (- is the standard input) instead of JSON."
)
@click.option(
    "--lines",
    type=click.File("rb"),
    help="Publish one message per line of JSON in a file (- is the standard input), all or none.",
)
@click.option("--delay", type=DURATION, help="Not available before this time has passed, like 90s or 1h30m.")
@click.option("--available-at", type=MOMENT, help="Not available before this time, like 2027-01-31T08:00:00+01:00.")
@click.option("--expires-in", type=DURATION, help="Stored as expires_at; nothing acts on it in this version.")
@click.option("--priority", type=click.IntRange(0, 9), help="0 goes first, 9 last. [default: 5]")
@click.option("--key", help="Deduplication key: at most one untried message of the topic has it.")
@click.option("--channel", help="Fairness and limit group inside the topic.")
@click.option("--header", "headers", type=HEADER, multiple=True, help="A header; may be given several times.")
@click.option("--max-attempts", type=click.IntRange(0), help="Attempts instead of the topic's; 0 is no limit.")
@click.pass_obj
def publish(
    session: Session,
    /,
    topic: str,
    payload: str | None,
    body_file: IO[bytes] | None,
    lines: IO[bytes] | None,
    headers: tuple[tuple[str, str], ...],
    **options: timedelta | datetime | int | str | None,
) -> None:
    """Publish a message and print its id.

    The payload is JSON; - reads it from the standard input. Without one it is null.

    \b
    pgrouse publish orders.created '{"id": 7}'
    pgrouse publish orders.created --lines orders.jsonl
    """  # noqa: D301 - click reads the real \b
    if sum(given is not None for given in (payload, body_file, lines)) > 1:
        raise click.UsageError("a payload, --body-file and --lines exclude each other")
    shared = {"topic": topic, "headers": dict(headers) or None, **options}
    if lines is not None:
        _publish_lines(session, lines, shared)
    else:
        _publish_one(session, shared | _content(payload, body_file))


def _content(payload: str | None, body_file: IO[bytes] | None) -> dict[str, Any]:
    from pgrouse.jsonb import Raw  # noqa: PLC0415

    if body_file is not None:
        return {"body": body_file.read()}
    if payload == "-":
        payload = _text(sys.stdin.buffer.read(), "payload")
    return {"payload": None if payload is None else Raw(payload)}


def _text(data: bytes, where: str) -> str:
    from pgrouse.errors import PublishRefused  # noqa: PLC0415

    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PublishRefused(
            f"{where} is not UTF-8 (byte {error.start}): JSON is; other bytes are published by --body-file"
        ) from error


def _publish_one(session: Session, values: dict[str, Any]) -> None:
    from pgrouse.publishing import publish as publish_one  # noqa: PLC0415

    with session.connect() as conn:
        message_id = publish_one(conn, **values)
    if session.as_json:
        session.output.record({"id": message_id, "topic": values["topic"]})
    session.output.say(str(message_id))


def _publish_lines(session: Session, lines: IO[bytes], shared: dict[str, Any]) -> None:
    from pgrouse.publishing import publish_many  # noqa: PLC0415

    with session.connect() as conn:
        count = publish_many(conn, _messages(lines, shared))
    if session.as_json:
        session.output.record({"published": count, "topic": shared["topic"]})
    session.output.say(f"published {plural(count, 'message')}")


def _messages(lines: IO[bytes], shared: dict[str, Any]) -> Iterator[NewMessage]:
    from pgrouse.jsonb import Raw  # noqa: PLC0415
    from pgrouse.new_message import NewMessage  # noqa: PLC0415

    for number, line in enumerate(lines, 1):
        if line.strip():
            yield NewMessage(payload=Raw(_text(line.strip(), f"line {number}")), **shared)
