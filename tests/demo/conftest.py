"""Fixtures for the tests of the demo: a folder of files, a database, and the demo itself."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from pgrouse.cli.demo.environment import examples
from tests.demo.process import PGROUSE, Demo, environ, execute
from tests.server.postgres import Database, Postgres

HERE = Path(__file__).parent
TEXT = "spam eggs spam\n"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the tests of this folder on one server: they test the demo, not the server."""
    servers = {item: item.callspec.params.get("server") for item in items if hasattr(item, "callspec")}
    first = next((server for server in servers.values() if server), None)
    left_out = [item for item in items if HERE in item.path.parents and servers.get(item) not in (None, first)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def write_files(folder: Path) -> Path:
    """Make a directory with texts, one of them below another directory, and two binary files; return it."""
    root = folder / "files"
    (root / "deep" / "er").mkdir(parents=True)
    for n in range(40):
        (root / f"text-{n}").write_text(TEXT * n)
    (root / "deep" / "er" / "text").write_text("no line break at the end")
    (root / "binary").write_bytes(b"\x7fELF\x00")
    (root / "deep" / "late").write_bytes(b"x" * 100_000 + b"\x00")
    (root / "link").symlink_to(root / "text-1")
    return root


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that the demos of these tests process."""
    return write_files(tmp_path_factory.mktemp("demo"))


@pytest.fixture(scope="module")
def undisturbed(
    server: Postgres, files: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Demo, Database]]:
    """An undisturbed demo, with `--json`, after its end; and its database."""
    with server.new_database() as database:
        folder = tmp_path_factory.mktemp("undisturbed")
        demo = Demo(folder, database.dsn, "--dir", files, "--json", begin=execute)
        try:
            demo.end()
            yield demo, database
        finally:
            demo.kill()


@pytest.fixture
def demo(empty_database: Database, files: Path, tmp_path: Path) -> Iterator[Callable[..., Demo]]:
    """`demo("--keep")` starts a demo on `empty_database`."""
    started = []

    def start(*arguments: object) -> Demo:
        started.append(Demo(tmp_path, empty_database.dsn, "--dir", files, *arguments))
        return started[-1]

    yield start
    for each in started:
        each.kill()


@pytest.fixture
def pids(empty_database: Database, eventually: Callable[..., list[int]]) -> Callable[[int], list[int]]:
    """`pids(2)` waits until two daemons are registered, and returns their process ids.

    Daemons that the demo starts later, as replacements for killed ones, are not included.
    """
    conn = empty_database.connect()

    def registered() -> list[int]:
        try:
            return [pid for (pid,) in conn.execute("SELECT w.pid FROM messages.worker AS w ORDER BY w.name")]
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            return []

    def wait(count: int) -> list[int]:
        return eventually(lambda: found[:count] if len(found := registered()) >= count else [], within_s=60)

    return wait


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """`daemon(dsn)` runs the examples as their README describes."""
    started = []

    def start(dsn: str) -> None:
        command = [PGROUSE, "run", "--config", examples() / "pgrouse.toml"]
        started.append(
            subprocess.Popen(command, env={**environ(tmp_path), "PGROUSE_DSN": dsn}, stderr=subprocess.DEVNULL)
        )

    yield start
    for each in started:
        each.terminate()
        each.wait(60)
