"""The command line in a Django project."""

from __future__ import annotations

from collections.abc import Sequence

from pgrouse.cli.command import CliSession
from pgrouse.config.config import Config
from pgrouse.contrib.django import project


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
