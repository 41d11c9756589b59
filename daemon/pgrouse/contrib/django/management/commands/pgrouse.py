"""`manage.py pgrouse ...`: the command line of pgrouse, with the settings of the project."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from pgrouse.cli import main
from pgrouse.config.config import Config
from pgrouse.contrib.django import project
from pgrouse.terminal.command import CliSession


class DjangoSession(CliSession):
    """A call of `manage.py pgrouse`: the settings of the project hold, below those of the file.

    Args:
        queues: handle only the tasks of these queues; none = handle everything.
    """

    def __init__(self, queues: Sequence[str] = ()) -> None:
        super().__init__()
        self.queues = queues

    def read_config(self) -> Config:
        """Read the configuration."""
        return project.load_config(self.config_path, self.overrides, self.queues)

    def how_to_add_a_handler(self, config: Config) -> str:
        """Return what to do where a project has no handler."""
        return (
            "write a task into the module `tasks` of an installed app, with PgrouseBackend in TASKS, "
            'or name a handler by PGROUSE = {"topics": {"orders.created": {"handler": …}}}'
        )


# Options that manage.py has read already, wherever they stand.
OF_MANAGE = ("--settings", "--pythonpath")


class PgrouseCommand(BaseCommand):
    """Everything that `pgrouse` does, on the database of the project: `run`, `migrate`, `dead list`, and so on."""

    help = "Run pgrouse with the settings of this project: manage.py pgrouse run, migrate, dead list, and so on."
    # The daemon imports everything that it runs, and reports what is wrong with it; nor is a check of a project a
    # reason not to look at its queue.
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Take everything as it is."""
        parser.add_argument(
            "--queue",
            action="append",
            metavar="NAME",
            help="With run: work the tasks of this queue only. May be repeated.",
        )
        parser.add_argument("arguments", nargs=argparse.REMAINDER, help="As of pgrouse; --help lists them.")

    def handle(self, *_: Any, arguments: list[str], queue: list[str] | None, **__: Any) -> None:
        """Run it; its exit code is that of the process."""
        code = main(_without_settings(arguments) or ["--help"], DjangoSession(queue or ()), "manage.py pgrouse")
        if code:
            sys.exit(code)


def _without_settings(arguments: list[str]) -> list[str]:
    left, skip = [], False
    for each in arguments:
        if skip or each.partition("=")[0] in OF_MANAGE:
            skip = each in OF_MANAGE and not skip
        else:
            left.append(each)
    return left


Command = PgrouseCommand
