"""The command lines of the pipeline's jobs, as deployments run them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from pgrouse.cli.background.pipeline import pipeline


def parsed(job: str, arguments: Sequence[str]) -> dict[str, Any]:
    """Return what `pgrouse pipeline JOB` understands.

    Raises:
        click.UsageError: an option does not exist, or has a value that it does not take.
    """
    command = pipeline.get_command(click.Context(pipeline), job)
    assert command is not None
    return command.make_context(job, list(arguments)).params
