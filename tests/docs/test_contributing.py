"""CONTRIBUTING.md shows the current layout."""

from __future__ import annotations

import re
from functools import cache

from tests.docs.page import ROOT, Page

TREE = Page("CONTRIBUTING.md").section("The layout").blocks[0].text


def test_every_file_and_folder_in_the_tree_exists() -> None:
    missing = [path for path in _paths() if not (ROOT / path).exists()]

    assert missing == []


def test_the_tree_has_every_top_folder() -> None:
    there = {path.split("/")[0] for path in _files()}

    assert there == {path.split("/")[0] for path in _paths() if "/" in path}


def test_the_tree_has_every_module_and_folder_of_the_package() -> None:
    below = [path.removeprefix("daemon/pgrouse/") for path in _files() if path.startswith("daemon/pgrouse/")]
    there = {name.split("/")[0] + ("/" if "/" in name else "") for name in below} - {"py.typed"}

    shown = {path.removeprefix("daemon/pgrouse/") for path in _paths() if path.startswith("daemon/pgrouse/")}
    assert there == {name for name in shown if name.count("/") <= 1 and not name.partition("/")[2]} - {""}


def test_a_folder_that_shows_its_folders_shows_all() -> None:
    for shown in ("worker", "web"):
        there = {
            path.split("/")[3]
            for path in _files()
            if path.startswith(f"daemon/pgrouse/{shown}/") and path.count("/") > 3 and path.endswith(".py")
        }

        assert there == {
            path.split("/")[3]
            for path in _paths()
            if path.startswith(f"daemon/pgrouse/{shown}/") and path.count("/") == 4 and path.endswith("/")
        }


def test_the_table_of_tests_has_every_folder_of_tests() -> None:
    table = Page("CONTRIBUTING.md").section("The layout").text
    named = set(re.findall(r"`tests/(\w+)/`", table))
    there = {path.split("/")[1] for path in _files() if path.startswith("tests/") and path.count("/") > 1}

    assert there <= named


def _paths() -> list[str]:
    """Return the paths in the tree; folders end with a slash, and what is in them is indented by two."""
    paths: list[str] = []
    folders: list[str] = []
    for line in TREE.split("\n"):
        depth = (len(line) - len(line.lstrip())) // 2
        name = re.sub(r"\s{2,}.*", "", line.strip())
        folders[depth:] = [name]
        paths.append("".join(folders))
    return paths


@cache
def _files() -> list[str]:
    """Return the files of the checkout, without what commands make."""
    folders = [
        path for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".") and path.name != "dist"
    ]
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    return [str(path.relative_to(ROOT)) for path in files]
