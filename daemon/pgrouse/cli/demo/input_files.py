"""The files that the demo processes."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

# These are in the folder of the standard library, but do not belong to it: installed packages, and files that the
# interpreter writes during the demo.
NOT_THE_LIBRARY = frozenset({"site-packages", "dist-packages", "__pycache__"})


@dataclass(frozen=True)
class File:
    """A regular file as it was found.

    Attributes:
        path: absolute.
        state: size and time of change, to check later whether it is still the same.
    """

    path: str
    state: tuple[int, int]

    def is_unchanged(self) -> bool:
        """Whether it has not been changed since."""
        try:
            return _state(os.stat(self.path)) == self.state  # noqa: PTH116 - paths are text here
        except OSError:
            return False


@dataclass(frozen=True)
class InputFiles:
    """The files of one run.

    Attributes:
        root: the directory.
        files: every regular file below it, and the interpreter, which is a binary file and ensures that there is one.
        unnamed: how many files were left out because their names are not UTF-8, so that JSON cannot hold them.
    """

    root: Path
    files: list[File]
    unnamed: int


def find(directory: Path | None, limit: int | None) -> InputFiles:
    """Walk a directory, by default the standard library.

    Links are not followed; folders that may not be read are left out.
    """
    root = Path(os.path.realpath(directory or sysconfig.get_path("stdlib")))
    leave_out = frozenset() if directory else NOT_THE_LIBRARY
    found = list(islice(_walk(str(root), leave_out), limit))
    interpreter = os.path.realpath(sys.executable)
    if all(each.path != interpreter for each in found):
        found.append(File(interpreter, _state(os.stat(interpreter))))  # noqa: PTH116
    named = [each for each in found if _is_utf8(each.path)]
    return InputFiles(root, named, len(found) - len(named))


def _walk(folder: str, leave_out: frozenset[str]) -> Iterator[File]:
    try:
        entries = sorted(os.scandir(folder), key=lambda each: each.name)
    except OSError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            if entry.name not in leave_out:
                yield from _walk(entry.path, leave_out)
        elif entry.is_file(follow_symlinks=False) and (file := _file(entry)):
            yield file


def _file(entry: os.DirEntry[str]) -> File | None:
    try:
        return File(entry.path, _state(entry.stat(follow_symlinks=False)))
    except FileNotFoundError:  # deleted after the folder was read
        return None


def _state(found: os.stat_result) -> tuple[int, int]:
    return found.st_size, found.st_mtime_ns


def _is_utf8(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
