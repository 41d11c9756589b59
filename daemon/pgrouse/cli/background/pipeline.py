"""`pgrouse pipeline`: the jobs over the archive. They live in a package of their own, which the daemon never loads."""

from __future__ import annotations

from importlib.util import find_spec

import click

from pgrouse.errors import ConfigError
from pgrouse.terminal.lazy_group import LazyGroup

JOBS = {
    "export": ("pyspark_pgrouse.jobs.export:export", "Write the archive to a lake, a Delta table."),
    "erase": ("pyspark_pgrouse.jobs.erase:erase", "Erase the rows of keys or ids from a lake."),
    "report": ("pyspark_pgrouse.jobs.report:report", "Make tables and one HTML page of what happened."),
    "publish": ("pyspark_pgrouse.jobs.publish:publish", "Publish the rows of files or of a table."),
    "redrive": ("pyspark_pgrouse.jobs.redrive:redrive", "Put back the dead messages that an expression chooses."),
    "consume": ("pyspark_pgrouse.jobs.consume:consume", "Work messages by a function over DataFrames."),
}
# What the jobs need beyond Spark, or instead of it: a module, what it is called, and the extra that installs it.
SPARK = ("pyspark", "Spark", "spark")
NEEDS = {"report": ("vl_convert", "DuckDB and Vega", "report")}


class Jobs(LazyGroup):
    """The jobs, if what they need is installed."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a job.

        Raises:
            ConfigError: the extra is not installed.
        """
        module, name, extra = NEEDS.get(cmd_name, SPARK)
        if cmd_name in JOBS and find_spec(module) is None:
            raise ConfigError(
                f"`pgrouse pipeline {cmd_name}` needs {name}, not installed here: pip install 'pgrouse[{extra}]'"
            )
        return super().get_command(ctx, cmd_name)


@click.command(cls=Jobs, lazy=JOBS)
def pipeline() -> None:
    """Run the data pipeline over the archive: on Spark, the report with DuckDB."""
