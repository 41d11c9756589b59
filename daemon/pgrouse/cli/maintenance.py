"""`pgrouse maintenance`: run the maintenance by hand."""

from __future__ import annotations

from dataclasses import asdict

import click

from pgrouse.cli.command import CliSession, CommandGroup
from pgrouse.cli.output import Column
from pgrouse.client.calls.maintenance import TickTask, run_maintenance, tick
from pgrouse.errors import ExitCode

TASKS = ("expire_locks", "expire_messages", "purge")


@click.group(cls=CommandGroup)
def maintenance() -> None:
    """Run the maintenance by hand."""


@maintenance.command()
@click.option("--task", type=click.Choice(TASKS), help="Only this task.")
@click.pass_obj
def run(session: CliSession, task: str | None) -> int:
    """Run all maintenance functions once.

    As pg_cron and the daemons do regularly; it may be called at any time.
    """
    done = session.run(tick()) if task is None else [TickTask(task, session.run(run_maintenance(task)))]
    rows = [asdict(each) for each in done]
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
