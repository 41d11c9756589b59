"""Finds declarations in code.

It imports the modules that `handlers.modules` names, and adds their topics and schedules to the configuration.

Only commands that need handlers or policies do this. The settings in the file override those in the code.
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic_core import from_json

from pgrouse.config import config
from pgrouse.config.source import ConfigProblem, ConfigProblems, ConfigSource, Key, Origin
from pgrouse.errors import ConfigError, InvalidMessage
from pgrouse.handlers.declaration.source_place import error_place, show_path
from pgrouse.handlers.declaration.topic import DeclaredSchedule, Place, Topic
from pgrouse.logging import events
from pgrouse.values import jsonb

# Use the standard library's logger: a command that only checks a configuration sets up no logging, and then nothing is
# printed.
quiet_log = logging.getLogger("pgrouse")


def with_declared(settings: config.Config) -> config.Config:
    """Return the configuration with the declarations of its modules.

    Raises:
        ConfigProblems: a module cannot be imported or declares nothing, two declare the same thing, or a value is
            wrong; with file and line.
    """
    if not settings.handlers.modules:
        return settings
    extend_import_path(settings.handlers)
    reading = _Reading(settings)
    for name in settings.handlers.modules:
        reading.add(name)
    if reading.problems:
        raise ConfigProblems(reading.problems)
    return settings.over(reading.source)


def settings_of(name: str, declared: Topic[Any, ..., Any]) -> config.TopicSettings:
    """Return the settings that code gives a topic.

    Raises:
        ConfigProblems: a value is wrong.
    """
    reading = _Reading(config.Config())
    reading.source.put(("topics", name, "handler"), "code:handler", _origin(declared.place))
    reading.put(("topics", name), _plain(declared.options), declared.place)
    return config.Config().over(reading.source).topics[name]


def extend_import_path(rules: config.HandlersSettings) -> None:
    """Add the folders of `handlers.import_path` to the paths in which modules are found."""
    for folder in reversed(rules.import_path):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))


def import_module(name: str) -> ModuleType:
    """Import a module of handlers.

    Raises:
        ConfigError: it cannot be imported; with the reason and the line.
    """
    try:
        return importlib.import_module(name)
    except BaseException as error:  # sys.exit in a module must not end this process
        if isinstance(error, KeyboardInterrupt):
            raise
        quiet_log.debug(events.HANDLER_NOT_IMPORTED, exc_info=error)
        place = "" if isinstance(error, SyntaxError) else error_place(error)  # its text names the line
        where = f" (at {place})" if place else ""
        raise ConfigError(f"module {name} cannot be imported: {type(error).__name__}: {error}{where}") from error


class _Reading:
    """The declarations of the modules, as values of the configuration."""

    def __init__(self, settings: config.Config) -> None:
        self.settings = settings
        self.source = ConfigSource()
        self.problems: list[ConfigProblem] = []
        self._topics: dict[str, Topic[Any, ..., Any]] = {}
        self._schedules: dict[str, Place] = {}

    def add(self, module_name: str) -> None:
        """Import a module, and read its topics."""
        origin = self.settings.origin("handlers", "modules")
        try:
            found = list(_topics(import_module(module_name)))
        except ConfigError as error:
            self.problems.append(ConfigProblem(origin, "handlers.modules", f"handlers.modules: {error}"))
            return
        if not found:
            text = f"handlers.modules: {module_name} declares no topic: put @topic above its handlers, or remove it"
            self.problems.append(ConfigProblem(origin, "handlers.modules", text))
        for handler, each in found:
            self._add_topic(handler, each)

    def _add_topic(self, handler: str, declared: Topic[Any, ..., Any]) -> None:
        known = self._topics.setdefault(declared.name, declared)
        if known is not declared:
            text = f"topic {declared.name} is declared at {_at(known.place)} already: a topic has one handler"
            self._problem(declared.place, declared.name, text)
        elif declared.name not in self.source.values.get("topics", {}):
            self.put(("topics", declared.name), {"handler": handler, **_plain(declared.options)}, declared.place)
            for each in declared.schedules:
                self._add_schedule(each)

    def _add_schedule(self, declared: DeclaredSchedule) -> None:
        known = self._schedules.setdefault(declared.name, declared.place)
        if known is not declared.place:
            text = (
                f"schedule {declared.name} is declared at {_at(known)} already: "
                'give one of them a name="..." of its own'
            )
            self._problem(declared.place, declared.name, text)
            return
        try:
            values = {**_plain(declared.values), **_as_json(declared.values)}
        except (InvalidMessage, TypeError, ValueError) as error:
            self._problem(declared.place, declared.name, f"schedule {declared.name}: {error}")
            return
        self.put(("schedules", declared.name), values, declared.place)
        self.source.modules[declared.name] = declared.place.module

    def put(self, table: Key, values: dict[str, Any], place: Place) -> None:
        """Add the keys of a table."""
        origin = _origin(place)
        for name, value in values.items():
            self.source.put((*table, name), value, origin)
            self.source.origins |= dict.fromkeys(_keys_below((*table, name), value), origin)

    def _problem(self, place: Place, key: str, text: str) -> None:
        self.problems.append(ConfigProblem(_origin(place), key, text))


def _topics(module: ModuleType) -> Iterator[tuple[str, Topic[Any, ..., Any]]]:
    """Yield the topics that a module or its submodules declare, each with the name of its handler.

    Topics that it only imports are left out.
    """
    for name, value in list(vars(module).items()):
        if isinstance(value, Topic) and f"{value.place.module}.".startswith(f"{module.__name__}."):
            yield f"{module.__name__}:{name}", value


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values as a file would have them."""
    return {name: _plain_value(value) for name, value in values.items()}


def _plain_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _plain(value)
    if isinstance(value, tuple):
        return list(value)
    return f"{value.__module__}:{value.__qualname__}" if callable(value) and hasattr(value, "__qualname__") else value


def _as_json(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON values of a schedule as they are read back, with models and dataclasses converted."""
    return {name: from_json(jsonb.encode(values[name], name)) for name in ("payload", "headers") if name in values}


def _keys_below(key: Key, value: Any) -> Iterator[Key]:
    for name, inner in value.items() if isinstance(value, dict) else ():
        yield (*key, name)
        yield from _keys_below((*key, name), inner)


def _origin(place: Place) -> Origin:
    return Origin("code", Path(show_path(place.file)), place.line)


def _at(place: Place) -> str:
    return str(_origin(place))
