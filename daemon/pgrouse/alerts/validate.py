"""Checks the sinks of a configuration without sending anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgrouse.alerts.sinks import read_sinks
from pgrouse.config.source import ConfigProblems

if TYPE_CHECKING:
    from pgrouse.config.config import Config
    from pgrouse.config.source import Key


def validate_sinks(settings: Config) -> None:
    """Create every sink of the configuration.

    Raises:
        ConfigProblems: what is wrong, with file and line: a package is missing, an address is invalid, a program does
            not exist.
    """
    problems = []
    for number, sink in enumerate(read_sinks(settings)):
        key: Key = ("alerts", "to", number, sink.type)
        if text := sink.find_problem():
            problems.append(settings.problem(key, text))
    if problems:
        raise ConfigProblems(problems)
