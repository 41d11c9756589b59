"""`pgrouse pipeline`: the jobs on Spark. They live in a package of their own, which the daemon never loads."""

from __future__ import annotations

from importlib.util import find_spec

import click

from pgrouse.cli.lazy_group import LazyGroup
from pgrouse.errors import ConfigError

JOBS = {
    "export": ("pyspark_pgrouse.jobs.export:export", "Write the archive to a lake of Parquet files."),
    "report": ("pyspark_pgrouse.jobs.report:report", "Make tables and one HTML page of what happened."),
    "publish": ("pyspark_pgrouse.jobs.publish:publish", "Publish the rows of files or of a table."),
    "redrive": ("pyspark_pgrouse.jobs.redrive:redrive", "Put back the dead messages that an expression chooses."),
    "consume": ("pyspark_pgrouse.jobs.consume:consume", "Work messages by a function over DataFrames."),
}


class Jobs(LazyGroup):
    """The jobs, if what they need is installed."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a job.

        Raises:
            ConfigError: the extra is not installed.
        """
        if cmd_name in JOBS and find_spec("pyspark") is None:
            raise ConfigError("`pgrouse pipeline` needs Spark, which is not installed: pip install 'pgrouse[spark]'")
        return super().get_command(ctx, cmd_name)


@click.command(cls=Jobs, lazy=JOBS)
def pipeline() -> None:
    """Run the data pipeline over the archive, on Spark."""
