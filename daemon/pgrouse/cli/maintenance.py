"""`pgrouse maintenance`: run the maintenance by hand."""

from __future__ import annotations

import click

from pgrouse.cli.command import CliSession, CommandGroup
from pgrouse.cli.output import Column
from pgrouse.errors import ExitCode


@click.group(cls=CommandGroup)
def maintenance() -> None:
    """Run the maintenance by hand."""


@maintenance.command()
@click.pass_obj
def run(session: CliSession) -> int:
    """Run all maintenance functions once.

    As pg_cron and the daemons do regularly; it may be called at any time.
    """
    from psycopg.rows import dict_row  # noqa: PLC0415

    with session.connect() as conn:
        rows = (
            conn.cursor(row_factory=dict_row).execute("SELECT t.task, t.did FROM messages.tick('hand') AS t").fetchall()
        )
    columns = [
        Column("TASK", "task"),
        Column(
            "DID",
            "did",
            lambda did: "failed" if did < 0 else f"{did:,}",
            right=True,
            style=lambda did: "red" if did < 0 else "",
        ),
    ]
    session.output.rows(columns, rows, "another process runs them at the moment: nothing to do")
    return ExitCode.FOUND_A_PROBLEM if any(row["did"] < 0 for row in rows) else ExitCode.OK
