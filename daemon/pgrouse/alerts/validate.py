"""Checks the sinks of a configuration without sending anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgrouse.alerts.sinks import read_sinks
from pgrouse.config.source import ConfigProblems
from pgrouse.errors import ConfigError

if TYPE_CHECKING:
    from pgrouse.config.config import Config
    from pgrouse.config.source import Key


def validate_sinks(settings: Config) -> None:
    """Check every sink of the configuration.

    Raises:
        ConfigProblems: what is wrong, with file and line: a package is missing, an address is invalid, a program does
            not exist.
    """
    problems = []
    for number, sink in enumerate(read_sinks(settings)):
        key: Key = ("alerts", "to", number, sink.type)
        try:
            sink.check()
        except ConfigError as error:
            problems.append(settings.problem(key, error))
    if problems:
        raise ConfigProblems(problems)
