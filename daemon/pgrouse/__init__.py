"""pgrouse: a message queue and worker daemon in PostgreSQL.

Publishers need `publish`, `publish_many` and `wait_for`; handlers need `Context` or `AsyncContext` and the outcomes;
operators need `Client`. A name is imported when it is first used, so that the command line starts fast.
"""

from __future__ import annotations

from importlib import import_module


def _read_modules() -> dict[str, str]:
    """Return the module of each public name, from the stub next to this file.

    Its lines are `from MODULE import NAME as NAME`.
    """
    # Do not use pathlib: it would take longer than everything else here.
    lines = map(str.split, __loader__.get_data(f"{__file__}i").decode().splitlines())
    return {line[3]: line[1] for line in lines if line[:1] == ["from"]}


_MODULES = _read_modules()
__all__ = list(_MODULES)


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name == "__version__":
        return import_module("importlib.metadata").version("pgrouse")
    if name not in _MODULES:
        raise AttributeError(f"module 'pgrouse' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__", *globals()]
