"""`pgrouse publish`: messages from a shell."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click

from pgrouse.crypto.configured_cipher import load_cipher
from pgrouse.errors import InvalidMessage, PgrouseError
from pgrouse.publishing.new_message import NewMessage
from pgrouse.publishing.publish import publish as publish_one
from pgrouse.publishing.publish import publish_many
from pgrouse.telemetry import trace_context
from pgrouse.terminal.command import CliSession, Command
from pgrouse.terminal.param_types import DURATION, HEADER, MESSAGE_ID, TIMESTAMP
from pgrouse.values import jsonb
from pgrouse.values.format import plural
from pgrouse.values.jsonb import Raw

if TYPE_CHECKING:
    from pgrouse.crypto.cipher import Cipher
    from pgrouse.publishing.new_message import NewMessage


C = TypeVar("C", bound=Callable[..., Any])


class BackoffType(click.ParamType[Any]):
    """A kind of backoff, or a JSON object with its parts."""

    name = "backoff"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read it; the publish checks it."""
        if not isinstance(value, str) or not value.startswith("{"):
            return value
        try:
            return jsonb.decode(value, "backoff")
        except PgrouseError as error:
            self.fail(str(error), param, ctx)


def own_policy_options(command: C) -> C:
    """Add the options of a policy that messages have themselves."""
    options = (
        click.option("--max-attempts", type=click.IntRange(0), help="Attempts instead of the topic's; 0 is no limit."),
        click.option("--timeout", type=DURATION, help="How long an attempt may run, like 30s; instead of the topic's."),
        click.option(
            "--backoff",
            metavar="KIND|JSON",
            type=BackoffType(),
            help="How long to wait before the next attempt, instead of the topic's: none, constant, linear, "
            """exponential, or an object like '{"kind": "constant", "base": "1m"}'.""",
        ),
        click.option(
            "--retention", type=DURATION, help="How long the archive keeps it, like 90d; instead of the topic's."
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


# The note next to the id.
OUTCOMES = {
    "replaced": "replaced the waiting message with this key",
    "ignored": "not published: this message with the key waits already, or throttles it",
    "appended": "appended to the waiting message with this key",
    "held": "not published: this message still holds the key",
    "dropped": "dropped: the topic is full",
}


@click.command(cls=Command)
@click.argument("topic")
@click.argument("payload", required=False, metavar="[JSON | -]")
@click.option(
    "--body-file",
    metavar="FILE",
    type=click.File("rb"),
    help="Publish the bytes of a file (- is the standard input) instead of JSON.",
)
@click.option(
    "--lines",
    metavar="FILE",
    type=click.File("rb"),
    help="Publish one message per line of JSON in a file (- is the standard input), all or none, by COPY. "
    "Empty lines are skipped.",
)
@click.option(
    "--delay",
    type=DURATION,
    help="Not available before this time has passed, by the server's clock, like 90s or 1h30m.",
)
@click.option("--available-at", type=TIMESTAMP, help="Not available before this time, like 2027-01-31T08:00:00+01:00.")
@click.option(
    "--ttl",
    type=DURATION,
    help="How long it may wait for a worker once it is available, like 1h; instead of the topic's ttl.",
)
@click.option("--priority", type=click.IntRange(0, 9), help="0 goes first, 9 last. [default: 5]")
@click.option("--key", help="Deduplication key: at most one untried message of the topic has it.")
@click.option(
    "--on-conflict",
    type=click.Choice(("error", "replace", "ignore", "append")),
    default="error",
    show_default=True,
    help="What happens if a message with this key waits already: error = exit code 1; "
    "replace = it gets the new content and TTL, and keeps its id and its position; "
    "ignore = nothing is published; append = the payloads become one array. "
    "The id of the waiting message is printed.",
)
@click.option(
    "--debounce",
    type=DURATION,
    help="Not available before the key has not been published for this time, like 30s: a further publish replaces the "
    "content (or appends to it, with --on-conflict append) and starts the time again.",
)
@click.option(
    "--max-delay", type=DURATION, help="The longest time that --debounce may wait after the first publish, like 5m."
)
@click.option(
    "--throttle",
    type=DURATION,
    help="Publish nothing while the last message of the key waits, and for this time after it started, like 10s.",
)
@click.option(
    "--after",
    type=MESSAGE_ID,
    multiple=True,
    help="Run only after this message has succeeded; may be given several times.",
)
@click.option(
    "--after-failed",
    type=click.Choice(("hold", "cancel", "run")),
    default="hold",
    show_default=True,
    help="What happens if one of those ends otherwise: hold = wait for its redrive; cancel = end as cancelled too; "
    "run = run anyway.",
)
@click.option(
    "--batch", type=MESSAGE_ID, metavar="ID", help="The batch in which it counts, as `pgrouse batch create` prints it."
)
@click.option("--channel", help="The group inside the topic for fairness and limits.")
@click.option("--header", "headers", type=HEADER, multiple=True, help="A header; may be given several times.")
@own_policy_options
@click.pass_obj
def publish(
    session: CliSession,
    /,
    topic: str,
    payload: str | None,
    body_file: IO[bytes] | None,
    lines: IO[bytes] | None,
    headers: tuple[tuple[str, str], ...],
    **options: timedelta | datetime | int | str | dict[str, Any] | None,
) -> None:
    """Publish a message and print its id.

    The payload is JSON; - reads it from the standard input. Without one it is null.

    \b
    pgrouse publish orders.created '{"id": 7}'
    pgrouse publish orders.created --lines orders.jsonl
    """  # noqa: D301 - click reads the real \b
    if sum(given is not None for given in (payload, body_file, lines)) > 1:
        raise click.UsageError("a payload, --body-file and --lines exclude each other")
    shared = {"topic": topic, "headers": _headers(headers) or None, **options}
    if lines is not None:
        _publish_lines(session, lines, shared)
    else:
        _publish_one(session, shared | _content(payload, body_file))


def _headers(given: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Return the headers, with those of the trace context of the command."""
    headers = dict(given)
    return headers if trace_context.TRACEPARENT in headers else trace_context.from_environment(os.environ) | headers


def _content(payload: str | None, body_file: IO[bytes] | None) -> dict[str, Any]:
    if body_file is not None:
        return {"body": body_file.read()}
    if payload == "-":
        payload = utf8(sys.stdin.buffer.read(), "payload")
    return {"payload": None if payload is None else Raw(payload)}


def utf8(data: bytes, where: str) -> str:
    """Decode what a file or the standard input held.

    Raises:
        InvalidMessage: it is not UTF-8; says where.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidMessage(
            f"{where} is not UTF-8 (byte {error.start}): JSON is; other bytes are published by --body-file"
        ) from error


def _publish_one(session: CliSession, values: dict[str, Any]) -> None:
    cipher = _cipher(session)
    with session.connect() as conn:
        published = publish_one(conn, **values, cipher=cipher)
    message_id = int(published) or None
    session.record({"id": message_id, "topic": values["topic"], "outcome": published.outcome})
    if published.outcome != "inserted":
        session.note(OUTCOMES[published.outcome])
    if message_id is not None:
        session.say(str(message_id))


def _cipher(session: CliSession) -> Cipher | None:
    if session.config.crypto.current is None:
        return None

    return load_cipher(session.config)


def _publish_lines(session: CliSession, lines: IO[bytes], shared: dict[str, Any]) -> None:
    cipher = _cipher(session)
    with session.connect() as conn:
        many = publish_many(conn, _messages(lines, shared), cipher=cipher)
    counts = {"published": int(many), "dropped": many.dropped, "ignored": many.ignored}
    session.record({**counts, "topic": shared["topic"]})
    if many.dropped:
        session.note(f"{plural(many.dropped, 'message')} dropped: the topic is full")
    if many.ignored:
        session.note(f"{plural(many.ignored, 'message')} ignored: another message has the key")
    session.say(f"published {plural(int(many), 'message')}")


def _messages(lines: IO[bytes], shared: dict[str, Any]) -> Iterator[NewMessage]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield NewMessage(payload=Raw(utf8(line.strip(), f"line {number}")), **shared)
