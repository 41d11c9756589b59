"""A job as a program of its own, for spark-submit; and the options that all jobs have."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from pgrouse.cli.command import CliSession
from pgrouse.cli.error_report import report
from pgrouse.errors import ExitCode


def spark_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what says where a job runs: `--master` and `--conf`, as spark-submit has them."""
    conf = click.option(
        "--conf",
        multiple=True,
        metavar="KEY=VALUE",
        callback=_pairs,
        help="A setting of Spark. May be given more than once.",
    )
    master = click.option(
        "--master",
        help="Where it runs: spark://host:7077, local[4]. Default: SPARK_MASTER, otherwise all cores here. Executors use the same path of "
        "Python as this machine, unless PYSPARK_PYTHON names another.",
    )
    return master(conf(command))


def _pairs(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    for value in values:
        if "=" not in value:
            raise click.BadParameter(f"{value!r} is not KEY=VALUE")
    return dict(value.split("=", 1) for value in values)


def main(command: click.Command) -> None:
    """Run a job as a program, with the exit codes of `pgrouse`."""
    try:
        with command.make_context(f"pgrouse pipeline {command.name}", sys.argv[1:], obj=CliSession()) as ctx:
            code = command.invoke(ctx) or ExitCode.OK
    except BaseException as error:  # noqa: BLE001 - what is not explained there is raised again
        code = report(error, sys.stderr)
    sys.exit(int(code))
