"""`pgrouse maintenance`: run the maintenance by hand."""

from __future__ import annotations

from dataclasses import asdict

import click

from pgrouse.client.calls.maintenance import TickTask, run_maintenance, tick
from pgrouse.errors import ExitCode
from pgrouse.terminal.command import CliSession, CommandGroup
from pgrouse.terminal.table import Column

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
            "COUNT",
            "count",
            lambda count: "failed" if count < 0 else f"{count:,}",
            right=True,
            style=lambda count: "red" if count < 0 else "",
        ),
    ]
    session.rows(columns, rows, "another process runs them at the moment: nothing to do")
    return ExitCode.FOUND_A_PROBLEM if any(row["count"] < 0 for row in rows) else ExitCode.OK
