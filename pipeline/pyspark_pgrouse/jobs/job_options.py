"""The options that all jobs have."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from pgrouse.errors import ExitCode
from pyspark_pgrouse.jobs.run_metrics import MetricsTargets, measured, metrics_options


def spark_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of all jobs on Spark.

    They say where the jobs run (`--master` and `--conf`, as with spark-submit), and where their metrics go.
    """
    conf = click.option(
        "--conf",
        multiple=True,
        metavar="KEY=VALUE",
        callback=_pairs,
        help="A setting of Spark. May be given more than once.",
    )
    master = click.option(
        "--master",
        metavar="URL",
        help="Where it runs: spark://host:7077, local[4]. Default: SPARK_MASTER, then spark.master of "
        "spark-defaults.conf, otherwise all cores here. Executors use the same path of Python as this machine, unless "
        "PYSPARK_PYTHON names another.",
    )
    return master(conf(measured_options(command)))


def measured_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for the metrics of a run, and write the metrics when it ends."""

    @wraps(command)
    def run(
        *args: Any, metrics_textfile: Path | None, metrics_pushgateway: str | None, metrics_name: str, **given: Any
    ) -> Any:
        ctx = click.get_current_context()
        targets = MetricsTargets(metrics_textfile, metrics_pushgateway)
        with measured(ctx.obj, str(ctx.command.name), metrics_name, targets) as ended:
            code = command(*args, **given)
            ended(int(code or ExitCode.OK))
        return code

    return metrics_options(run)


def _pairs(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    for value in values:
        if "=" not in value:
            raise click.BadParameter(f"{value!r} is not KEY=VALUE")
    return dict(value.split("=", 1) for value in values)
