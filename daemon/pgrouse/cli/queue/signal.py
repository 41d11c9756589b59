"""`pgrouse message signal`: give messages the events for which their handlers wait, or hand out URLs that do."""

from __future__ import annotations

from datetime import timedelta

import click

from pgrouse.client.call import run
from pgrouse.client.calls import event
from pgrouse.client.queries.clock import now
from pgrouse.client.signal_url import NO_ADDRESS, signal_url
from pgrouse.errors import ConfigError
from pgrouse.terminal.command import CliSession, Command
from pgrouse.terminal.param_types import DURATION, MESSAGE_ID
from pgrouse.values.jsonb import Raw, encode

NUMBER = click.option(
    "--number",
    type=click.IntRange(1, 1000),
    help="Signal only if fewer than this many signals of this name have come: with 1, only the first counts.",
)
PAYLOAD = click.option("--payload", metavar="JSON", help="What the handler gets; null unless given.")


@click.command(cls=Command)
@click.argument("message_id", type=MESSAGE_ID, metavar="ID")
@click.argument("name", metavar="NAME")
@PAYLOAD
@NUMBER
@click.pass_obj
def signal(session: CliSession, message_id: int, name: str, payload: str | None, number: int | None) -> int:
    """Signal an event to a message.

    Its handler waits for it, or will. A message that waits for this event is available at once. Otherwise the event is
    kept for its next wait.
    """
    found = session.run(event.signal(message_id, name, _checked(payload), number))
    problem = f"message {message_id} was not signalled: it has ended, or was never published"
    return session.result(found is not None, f"signalled {name} to {message_id}", problem, id=message_id, event=name)


@click.command("signal-key", cls=Command)
@click.argument("topic", metavar="TOPIC")
@click.argument("key", metavar="KEY")
@click.argument("name", metavar="NAME")
@PAYLOAD
@NUMBER
@click.pass_obj
def signal_key(session: CliSession, topic: str, key: str, name: str, payload: str | None, number: int | None) -> int:
    """Signal an event to the message of a topic with a key.

    If several messages have the key, it is the one that waits for this event, otherwise the oldest.
    """
    found = session.run(event.signal_key(topic, key, name, _checked(payload), number))
    problem = f"no message of topic {topic} with the key {key} waits or runs"
    return session.result(found is not None, f"signalled {name} to {found}", problem, id=found, event=name)


@click.command("signal-url", cls=Command)
@click.argument("message_id", type=MESSAGE_ID, metavar="ID")
@click.argument("name", metavar="NAME")
@click.option("--expires", type=DURATION, default="7d", show_default=True, help="How long it holds; at most 366 days.")
@click.option(
    "--number", type=click.IntRange(1, 1000), default=1, show_default=True, help="Which signal of this name it may be."
)
@click.pass_obj
def make_signal_url(session: CliSession, message_id: int, name: str, expires: timedelta, number: int) -> int:
    """Make a URL with which anyone may signal an event, once.

    It allows nothing else. A browser shows a button; a POST signals. It needs `web.url`.
    """
    address = session.config.web.url
    if address is None:
        raise ConfigError(NO_ADDRESS)
    with session.connect() as conn:
        url = run(conn, signal_url(address, message_id, name, run(conn, now()) + expires, number))
    return session.result(True, url, "", url=url)


def _checked(text: str | None) -> str | None:
    return None if text is None else encode(Raw(text), "payload")
