"""The types of sinks, a file each: a SinkTable with the keys of the type, and what sends. They are found by being here.

The configuration knows only the keys that all sinks have; what a type has of its own is read here, before anything is
sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from pydantic import ValidationError
from pydantic.json_schema import models_json_schema
from pydantic_core import InitErrorDetails

from pgrouse.alerts.sink import SinkTable
from pgrouse.config.alerts import AlertSink
from pgrouse.config.config import Config
from pgrouse.config.source import ConfigProblems


def _find() -> dict[str, type[SinkTable]]:
    for each in iter_modules(__path__):
        import_module(f"{__name__}.{each.name}")
    return {table.type: table for table in sorted(SinkTable.__subclasses__(), key=lambda table: table.type)}


TYPES = _find()
SHARED_KEYS = frozenset(AlertSink.model_fields)
# The types that have a key.
OWNERS = {
    key: [name for name, table in TYPES.items() if key in table.model_fields]
    for table in TYPES.values()
    for key in table.model_fields
    if key not in SHARED_KEYS
}
KNOWN_KEYS = [*AlertSink.model_fields, *OWNERS]


def with_sinks(config: Config) -> Config:
    """Return the configuration with its sinks read.

    Raises:
        ConfigProblems: everything that is wrong with them, with file, line and key.
    """
    return config.model_copy(update={"alerts": config.alerts.model_copy(update={"to": read_sinks(config)})})


def read_sinks(config: Config) -> list[SinkTable]:
    """Return the sinks of a configuration.

    Raises:
        ConfigProblems: everything that is wrong with them, with file, line and key.
    """
    found, problems = [], []
    for number, table in enumerate(config.alerts.to):
        try:
            found.append(read_sink(table))
        except ValidationError as error:
            problems += config.problems(error, ("alerts", "to", number), KNOWN_KEYS)
    if problems:
        raise ConfigProblems(problems)
    return found


def read_sink(table: AlertSink) -> SinkTable:
    """Return a sink; one that is read already as it is.

    Raises:
        ValidationError: a key is unknown, of another type, or has a value that it cannot have.
    """
    if isinstance(table, SinkTable):
        return table
    shared = {name: getattr(table, name) for name in table.model_fields_set & SHARED_KEYS}
    own = {name: value.get_secret_value() for name, value in (table.model_extra or {}).items()}
    if problems := list(_problems(own)):
        raise ValidationError.from_exception_data("sink", problems)
    (chosen,) = (TYPES[key] for key in own if key in TYPES)
    return chosen.model_validate(shared | own)


def _problems(own: Mapping[str, Any]) -> Iterator[InitErrorDetails]:
    """Yield what is wrong with the keys by which sinks differ."""
    unknown = [key for key in own if key not in OWNERS]
    yield from (InitErrorDetails(type="extra_forbidden", loc=(key,), input=None) for key in unknown)
    types = [name for name in TYPES if name in own]
    if len(types) != 1:
        found = f", found {' and '.join(types)}" if types else ""
        if types or not unknown:
            yield _problem(f"needs exactly one of {', '.join(TYPES)}{found}")
        return
    for key in own:
        if types[0] not in OWNERS.get(key, types):
            yield _problem(f"{key} is for {' and '.join(OWNERS[key])}, not for {types[0]}")


def _problem(text: str) -> InitErrorDetails:
    return InitErrorDetails(type="value_error", loc=(), input={}, ctx={"error": ValueError(text)})


def describe() -> dict[str, Any]:
    """Return the JSON Schema of a sink, with its `$defs`."""
    refs, described = models_json_schema([(table, "validation") for table in TYPES.values()])
    return {**described, "anyOf": list(refs.values())}
