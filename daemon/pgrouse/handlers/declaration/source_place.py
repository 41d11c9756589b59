"""Where in the user's code something happened: `shop/jobs.py:12 in resize`."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path

OUR_CODE = Path(__file__).parents[1]
LIBRARIES = tuple(
    str(Path(sysconfig.get_path(name)).resolve()) for name in ("stdlib", "platstdlib", "purelib", "platlib")
)


def find_place(frames: Iterable[traceback.FrameSummary]) -> str | None:
    """Return the place of the innermost frame in the user's code, if there is one. frames: the outermost first."""
    users = [frame for frame in frames if not (_is_internal(frame.filename) or _is_library(frame.filename))]
    if not users:
        return None
    frame = users[-1]
    function = "" if frame.name == "<module>" else f" in {frame.name}"
    return f"{show_path(frame.filename)}:{frame.lineno}{function}"


def error_place(error: BaseException) -> str | None:
    """Return where an error was raised, as `find_place` does."""
    return find_place(traceback.extract_tb(error.__traceback__))


def show_path(filename: str) -> str:
    """Return a path as people write it: relative, if it is below the working directory."""
    path, here = Path(filename), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else filename


def _is_internal(filename: str) -> bool:
    return filename.startswith("<") or OUR_CODE in Path(filename).parents


def _is_library(filename: str) -> bool:
    return str(Path(filename).resolve()).startswith(LIBRARIES)
