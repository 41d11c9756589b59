"""Whether the sinks of a configuration could be sent to, as far as that can be told without sending anything."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from pgrouse.alerts.sinks import make
from pgrouse.config.source import ConfigProblems, Problem
from pgrouse.errors import ConfigError

if TYPE_CHECKING:
    from pgrouse.config.alerts import AlertSink
    from pgrouse.config.config import Config


def check(settings: Config) -> None:
    """Make every sink of the configuration.

    Raises:
        ConfigProblems: what is wrong, with file and line: a package is missing, an address is none, a program is not there.
    """
    problems = []
    for number, sink in enumerate(settings.alerts.to):
        if text := _wrong(sink):
            key = f"alerts.to[{number}].{sink.type}"
            origin = settings.origin("alerts", "to", number, sink.type)  # type: ignore[arg-type]
            problems.append(Problem(origin, key, f"{key}: {text}"))
    if problems:
        raise ConfigProblems(problems)


def _wrong(sink: AlertSink) -> str | None:
    try:
        make(sink)
    except ConfigError as error:
        return str(error)
    if sink.command and shutil.which(sink.command[0]) is None:
        return f"there is no program {sink.command[0]}"
    return None
