"""The function that `consume` calls for every batch: it is found by its name before anything is claimed."""

from __future__ import annotations

import difflib
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from pgrouse.errors import ConfigError


def find_function(name: str, folders: Iterable[Path] = ()) -> Callable[..., Any]:
    """Import the function that `module:function` names.

    Args:
        name: the name.
        folders: the folders where modules are searched first. The Python processes of this machine's executors also
            search there.

    Raises:
        ConfigError: there is none, or it does not take one DataFrame; the text suggests the nearest name.
    """
    module_name, colon, function_name = name.partition(":")
    if not (colon and module_name and function_name):
        raise ConfigError(f"{name!r} names no function: write module:function, as in shop.orders:load")
    _add_to_path([str(folder.resolve()) for folder in folders])
    module = _import(module_name)
    function = getattr(module, function_name, None)
    if not callable(function):
        raise ConfigError(f"{module_name} has no function {function_name}{_nearest(module, function_name)}")
    _check_signature(name, function)
    return function  # type: ignore[no-any-return]


def source_file(function: Callable[..., Any]) -> Path | None:
    """Return the file that executors need to run the function's tasks; None if it is part of a package."""
    module = inspect.getmodule(function)
    file = getattr(module, "__file__", None)
    return Path(file) if module is not None and file and "." not in module.__name__ and not _is_package(file) else None


def _is_package(file: str) -> bool:
    return Path(file).name == "__init__.py"


def _add_to_path(folders: list[str]) -> None:
    for folder in reversed(folders):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join([*(f for f in folders if f not in known), *filter(None, known)])


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except BaseException as error:  # sys.exit in a module must not end this process
        if isinstance(error, KeyboardInterrupt):
            raise
        raise ConfigError(f"module {name} cannot be imported: {type(error).__name__}: {error}") from error


def _nearest(module: ModuleType, name: str) -> str:
    known = sorted(each for each, value in vars(module).items() if inspect.isfunction(value))
    if near := difflib.get_close_matches(name, known, 1):
        return f"; did you mean {near[0]}?"
    return f" (it has: {', '.join(known)})" if known else ""


def _check_signature(name: str, function: Callable[..., Any]) -> None:
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        raise ConfigError(f"{name} must take one argument, the DataFrame of the batch") from None
    except ValueError:  # a function written in C, without a signature
        return
