"""Which files the demo processes."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

from pgrouse.cli.demo import input_files

INTERPRETER = os.path.realpath(sys.executable)


def found(root: Path, limit: int | None = None) -> list[str]:
    return [
        os.path.relpath(file.path, root) for file in input_files.find(root, limit).files if file.path != INTERPRETER
    ]


def test_every_regular_file_below_a_directory_is_found_in_the_order_of_names(tmp_path: Path) -> None:
    for name in ("b", "a/c", "a/__pycache__/d"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "link").symlink_to(tmp_path / "b")
    (tmp_path / "round").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe")

    assert found(tmp_path) == ["a/__pycache__/d", "a/c", "b"]
    assert found(tmp_path, limit=2) == ["a/__pycache__/d", "a/c"]


def test_names_that_are_not_utf8_are_omitted_and_counted(tmp_path: Path) -> None:
    (tmp_path / "good").touch()
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/b\xffd")).touch()

    assert found(tmp_path) == ["good"]
    assert input_files.find(tmp_path, None).unnamed == 1


def test_the_default_is_the_standard_library_without_installed_and_compiled_files() -> None:
    files = input_files.find(None, None)

    assert files.root == Path(os.path.realpath(sysconfig.get_path("stdlib")))
    assert str(files.root / "os.py") in {file.path for file in files.files}
    assert not [
        file.path
        for file in files.files
        if {"site-packages", "dist-packages", "__pycache__"} & {*Path(file.path).parts}
    ]
