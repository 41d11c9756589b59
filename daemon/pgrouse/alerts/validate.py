"""Checks the sinks of a configuration without sending anything."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from pgrouse.alerts.sinks import create_sink
from pgrouse.config.source import ConfigProblem, ConfigProblems
from pgrouse.errors import ConfigError

if TYPE_CHECKING:
    from pgrouse.config.alerts import AlertSink
    from pgrouse.config.config import Config


def validate_sinks(settings: Config) -> None:
    """Create every sink of the configuration.

    Raises:
        ConfigProblems: what is wrong, with file and line: a package is missing, an address is invalid, a program does not exist.
    """
    problems = []
    for number, sink in enumerate(settings.alerts.to):
        if text := _wrong(sink):
            key = f"alerts.to[{number}].{sink.type}"
            origin = settings.origin("alerts", "to", number, sink.type)  # type: ignore[arg-type]
            problems.append(ConfigProblem(origin, key, f"{key}: {text}"))
    if problems:
        raise ConfigProblems(problems)


def _wrong(sink: AlertSink) -> str | None:
    try:
        create_sink(sink)
    except ConfigError as error:
        return str(error)
    if sink.command and shutil.which(sink.command[0]) is None:
        return f"there is no program {sink.command[0]}"
    return None
