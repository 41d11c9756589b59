"""`pgrouse subscription`: which topics get copies of the messages of another."""

from __future__ import annotations

import click

from pgrouse.client.queries.topic import add_subscription, find_subscriptions, remove_subscription
from pgrouse.terminal.command import CliSession, CommandGroup
from pgrouse.terminal.table import Column


@click.group(cls=CommandGroup)
def subscription() -> None:
    """Copy messages that are published to a topic to others.

    A message that is published to TOPIC becomes one ordinary message in each SUBSCRIBER's topic, in the publisher's
    transaction. TOPIC may be a pattern: 'orders.*' has one level more, 'orders.**' any number of them.
    """


@subscription.command("list")
@click.argument("topic", required=False)
@click.pass_obj
def list_subscriptions(session: CliSession, topic: str | None) -> None:
    """List the subscriptions, or those of one topic on either side."""
    rows = session.read_rows(find_subscriptions(topic))
    columns = [
        Column("TOPIC", "topic", wide=True),
        Column("SUBSCRIBER", "subscriber", wide=True),
        Column("BY", "created_by"),
    ]
    session.rows(columns, rows, "no subscriptions")


@subscription.command()
@click.argument("topic")
@click.argument("subscriber")
@click.pass_obj
def add(session: CliSession, topic: str, subscriber: str) -> None:
    """Subscribe SUBSCRIBER to TOPIC from now on."""
    added = session.run(add_subscription(topic, subscriber))
    said = f"{subscriber} gets what is published to {topic}" + ("" if added else ", as before: nothing to change")
    session.done(said, topic=topic, subscriber=subscriber, added=added)


@subscription.command()
@click.argument("topic")
@click.argument("subscriber")
@click.pass_obj
def remove(session: CliSession, topic: str, subscriber: str) -> int:
    """End a subscription. Messages published before stay. Exit code 1 if there was none."""
    removed = session.run(remove_subscription(topic, subscriber))
    said = f"{subscriber} no longer gets what is published to {topic}"
    problem = f"{subscriber} does not subscribe to {topic}: see `pgrouse subscription list`"
    return session.result(removed, said, problem, topic=topic, subscriber=subscriber, removed=removed)
