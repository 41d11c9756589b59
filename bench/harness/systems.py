"""The systems that run in the harness, each started on this machine as its image would start it.

The adapters of other queues are those of the harness, with the versions that it pins. Only awa's is in Rust, and needs
a checkout of awa: here its Python client has an adapter.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.peers import environment
from bench.peers.environment import FOLDER, Unavailable
from bench.peers.peer import PEERS

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
BY_NAME = {peer.name: peer for peer in PEERS}


@dataclass(frozen=True)
class System:
    """One system.

    Attributes:
        name: its name in the harness.
        folder: where its `adapter.json` is.
        command: starts its adapter.
        prepare: installs in a database, by its connection string, what the server's image would have.
    """

    name: str
    folder: Path
    command: list[str]
    prepare: Callable[[str], None] | None = None

    @property
    def is_pgrouse(self) -> bool:
        """Whether its messages can be checked, one by one."""
        return self.name.startswith("pgrouse")


def install(checkout: Path, name: str) -> System:
    """Install a system.

    Raises:
        Unavailable: it cannot be installed here.
    """
    return SYSTEMS[name](checkout, name)


def _pgrouse(checkout: Path, name: str) -> System:
    folder = HERE / f"{name}-bench"
    return System(name, folder, [sys.executable, str(PROGRAMS / "with_pgrouse.py"), str(folder), name])


def _awa(checkout: Path, name: str) -> System:
    python = environment.command(BY_NAME["awa"])[0]
    folder = checkout / "awa-bench"
    return System(name, folder, [python, str(PROGRAMS / "with_awa.py"), str(folder)])


def _python(checkout: Path, name: str) -> System:
    folder = checkout / f"{name}-bench"
    python = environment.for_pins(FOLDER / "harness" / name, folder / "pyproject.toml")
    return System(name, folder, [str(python), str(folder / "main.py")])


def _absurd(checkout: Path, name: str) -> System:
    if not Path(os.environ.get("ABSURD_SQL_PATH", "")).is_file():
        raise Unavailable("its schema is in no package: ABSURD_SQL_PATH must name sql/absurd.sql of its repository")
    return _python(checkout, name)


def _pgque(checkout: Path, name: str) -> System:
    if not (checkout / "pgque-bench" / "vendor" / "pgque" / "sql" / "pgque.sql").exists():
        raise Unavailable("its SQL is in a submodule: `git submodule update --init` in the checkout")
    return _python(checkout, name)


def _pgmq(checkout: Path, name: str) -> System:
    found = _python(checkout, name)
    command = environment.command(BY_NAME["pgmq"])

    def prepare(dsn: str) -> None:
        """Install its SQL, which its Python package has: the extension is in no registry."""
        subprocess.run([*command, "install"], env={**os.environ, "PGROUSE_BENCH_URL": dsn}, check=True)

    return System(name, found.folder, found.command, prepare)


def _pg_boss(checkout: Path, name: str) -> System:
    source, folder = checkout / f"{name}-bench", FOLDER / "harness" / name
    node = environment.command(BY_NAME["pg-boss"])[0]
    environment.for_lock(folder, source)
    shutil.copy(source / "main.js", folder)
    return System(name, source, [node, str(folder / "main.js")])


def _needs(what: str) -> Callable[[Path, str], System]:
    def refuse(checkout: Path, name: str) -> System:
        raise Unavailable(f"its adapter needs {what}, and packages that neither PyPI nor npm has")

    return refuse


SYSTEMS: dict[str, Callable[[Path, str], System]] = {
    "pgrouse": _pgrouse,
    "pgrouse-batch": _pgrouse,
    "awa": _awa,
    "pgque": _pgque,
    "pgmq": _pgmq,
    "pgboss": _pg_boss,
    "river": _needs("Go"),
    "oban": _needs("Elixir"),
    "procrastinate": _python,
    "absurd": _absurd,
}
