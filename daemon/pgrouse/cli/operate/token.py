"""`pgrouse token`: tokens of the web server."""

from __future__ import annotations

from datetime import timedelta

import click

from pgrouse.client.calls.web import add_token, revoke_token
from pgrouse.client.queries.token import find_tokens
from pgrouse.terminal.command import CliSession, CommandGroup
from pgrouse.terminal.param_types import DURATION
from pgrouse.terminal.table import Column
from pgrouse.values.format import show_ago
from pgrouse.web.access import tokens

ROLES = ("viewer", "publisher", "worker", "operator")


@click.group(cls=CommandGroup)
def token() -> None:
    """Create, list and revoke the tokens of the web server."""


@token.command()
@click.argument("name")
@click.option(
    "--role",
    "roles",
    type=click.Choice(ROLES),
    multiple=True,
    required=True,
    help="What it may do; may be given several times.",
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    default=("*",),
    show_default=True,
    help="For which topics: a name; a pattern: orders.* has one level more, orders.** any number of them; a beginning "
    "and *; or * for all.",
)
@click.option("--expires", type=DURATION, help="When it expires, like 90d. Default: never.")
@click.pass_obj
def add(
    session: CliSession, name: str, roles: tuple[str, ...], topics: tuple[str, ...], expires: timedelta | None
) -> None:
    """Create a token and print it, once.

    Only its digest is stored: it cannot be shown again.
    """
    made = tokens.new()
    session.run(add_token(name, tokens.digest(made), sorted(set(roles)), sorted(set(topics)), expires))
    if session.as_json:
        session.record({"name": name, "token": made})
        return
    click.echo(made)
    session.note(f"this is the token {name}: store it now, it is not shown again")


@token.command("list")
@click.pass_obj
def list_tokens(session: CliSession) -> None:
    """List the tokens, without their secrets. The last use is exact to five minutes."""
    rows = session.read_rows(find_tokens())
    columns = [
        Column("NAME", "name", wide=True),
        Column("STATE", "state", style=lambda state: {"good": "green", "expired": "yellow"}.get(state, "red")),
        Column("ROLES", "roles", ", ".join),
        Column("TOPICS", "topics", ", ".join, wide=True),
        Column("USED", "used", show_ago, optional=True),
        Column("EXPIRES", "expires", show_ago, optional=True),
        Column("BY", "created_by", wide=True),
    ]
    session.rows(columns, rows, "no token: create one with `pgrouse token add NAME --role operator`")


@token.command()
@click.argument("name")
@click.pass_obj
def revoke(session: CliSession, name: str) -> None:
    """End a token, and the sessions that were opened with it.

    Web servers notice it within two seconds.
    """
    was_good = session.run(revoke_token(name))
    said = f"revoked {name}" if was_good else f"{name} was not valid before"
    session.done(said, name=name, was_good=was_good)
