"""What the settings of a Django project say about the queue.

They have the setting PGROUSE, and the database that DATABASES describes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from psycopg import pq
from psycopg.conninfo import make_conninfo

from pgrouse.config import config
from pgrouse.config.config import Config
from pgrouse.config.source import COMMAND, ConfigSource, HostProgram, Key, Origin
from pgrouse.database.schema_name import VARIABLE, WRITTEN, SchemaName, schema_name
from pgrouse.errors import ConfigError

# The keys of PGROUSE that are no sections of the file.
OWN_KEYS = ("config", "using", "migrate")
Value = tuple[Key, Any, Origin]


def option(name: str, default: Any = None) -> Any:
    """Return a value of the setting PGROUSE."""
    return _setting().get(name, default)


def alias() -> str:
    """Return which of DATABASES has the queue."""
    return str(option("using", "default"))


def schema() -> SchemaName:
    """Return the schema of the queue: PGROUSE["database"]["schema"], else that of the environment."""
    return schema_name(option("database", {}).get("schema") or os.environ.get(VARIABLE) or WRITTEN)


def connection() -> Any:
    """Return Django's connection to the database of the queue.

    Raises:
        ImproperlyConfigured: it is no PostgreSQL.
    """
    found = connections[alias()]
    if found.vendor != "postgresql":
        raise ImproperlyConfigured(
            f'DATABASES["{alias()}"] leads to {found.vendor}: name one of PostgreSQL by PGROUSE = {{"using": …}}'
        )
    return found


def load_config(
    path: Path | None = None,
    overrides: Mapping[str, Mapping[str, Any]] | None = None,
    queues: Collection[str] = (),
) -> Config:
    """Read the configuration: below the file the settings of the project, and a handler for each of its tasks.

    Args:
        path: the file; None means $PGROUSE_CONFIG, else PGROUSE["config"], else `pgrouse.toml` if there is one.
        overrides: values of flags by section and key.
        queues: handle only the tasks of these queues; none = handle everything.

    Raises:
        ConfigProblems: everything that is wrong, with file, line and key.
        ConfigError: there is no such queue.
    """
    if path is None and not os.environ.get("PGROUSE_CONFIG") and option("config"):
        path = Path(option("config"))
    source = ConfigSource()
    for key, value, origin in (_dsn_value(), *_task_values(), *_section_values()):
        source.put(key, value, origin)
    # An installed app may have handlers wherever it is.
    modules = tuple(each.name for each in apps.get_app_configs())
    host = HostProgram(_command(), source, _name(), modules, _time_zone())
    found = config.load(path, overrides=overrides, host=host)
    return _of_queues(found, queues) if queues else found


def dsn() -> str:
    """Return the connection string of Django's database, also of one of the tests."""
    wanted = connection()
    parameters = {
        name: value
        for name, value in wanted.get_connection_params().items()
        if name in _libpq_keywords() and value is not None
    }
    if role := wanted.settings_dict["OPTIONS"].get("assume_role"):
        parameters["options"] = f"{parameters.get('options', '')} -c role={role}".strip()
    return make_conninfo("", **parameters)


def _setting() -> dict[str, Any]:
    found = getattr(settings, "PGROUSE", {})
    if not isinstance(found, dict):
        raise ImproperlyConfigured("PGROUSE is a dictionary with the sections of pgrouse.toml")
    return found


def _section_values() -> Iterator[Value]:
    for name, value in _setting().items():
        if name not in OWN_KEYS:
            yield from _leaves((name,), value)


def _leaves(key: Key, value: Any) -> Iterator[Value]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _leaves((*key, name), inner)
    else:
        yield key, value, Origin("settings", variable="settings.PGROUSE" + "".join(f"[{part!r}]" for part in key))


def _dsn_value() -> Value:
    return ("database", "dsn"), dsn(), Origin("settings", variable=f'settings.DATABASES["{alias()}"]')


def _task_values() -> Iterable[Value]:
    if not getattr(settings, "TASKS", None):  # before Django 6 there need not be tasks at all
        return ()
    from pgrouse.contrib.django.queued_task import find_task_handlers  # noqa: PLC0415 - extra django

    return find_task_handlers()


def _of_queues(found: Config, queues: Collection[str]) -> Config:
    """Return the configuration without the topics that are handled and are no tasks of these queues."""
    from pgrouse.contrib.django.queued_task import queue_of_handler  # noqa: PLC0415 - extra django

    known = {topic: queue_of_handler(topic, chosen.handler) for topic, chosen in found.topics.items()}
    if unknown := sorted(set(queues) - set(known.values())):
        raise ConfigError(f"--queue {unknown[0]}: no task may be enqueued there; name it in QUEUES of TASKS")
    topics = {topic: chosen for topic, chosen in found.topics.items() if not chosen.handler or known[topic] in queues}
    # Code may declare more than the tasks: that is in no queue.
    handlers = found.handlers.model_copy(update={"modules": []})
    return found.model_copy(update={"topics": topics, "handlers": handlers})


def _libpq_keywords() -> set[str]:
    return {each.keyword.decode() for each in pq.Conninfo.get_defaults()} | {"client_encoding"}


def _name() -> str:
    """Return what the database records for the schedules of these settings."""
    return f"settings {getattr(settings, 'SETTINGS_MODULE', None) or 'of the code'}"


def _time_zone() -> tuple[str, Origin] | None:
    """Return the time zone of the project; None: it follows that of the machine."""
    return (settings.TIME_ZONE, Origin("settings", variable="settings.TIME_ZONE")) if settings.TIME_ZONE else None


def _command() -> tuple[str, ...]:
    """Return how this process calls `manage.py pgrouse`, without its arguments."""
    given = sys.orig_argv[1:]
    return tuple(given[: given.index("pgrouse") + 1]) if "pgrouse" in given else COMMAND
