"""The environments of the peers: each is installed separately below `.peers`, in its pinned version."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from bench.peers.peer import HERE, PROGRAMS, Peer

FOLDER = Path(__file__).parents[2] / ".peers"
WITHIN_S = 600


class Unavailable(Exception):
    """A peer cannot be installed here; the text has the reason."""


def command(peer: Peer) -> list[str]:
    """Return the command of its program; install what the program needs first.

    Raises:
        Unavailable: it cannot be installed.
    """
    if not peer.package:
        return [sys.executable, str(PROGRAMS / peer.program)]
    return _for_node(peer) if peer.runs_on_node else _for_python(peer)


def _for_node(peer: Peer) -> list[str]:
    folder = FOLDER / "node"
    for_lock(folder, HERE)
    # An ES module finds its packages by its own place.
    for file in PROGRAMS.glob("*.mjs"):
        shutil.copy(file, folder / file.name)
    return [_node(folder), str(folder / peer.program)]


def for_lock(folder: Path, source: Path) -> None:
    """Install into a folder what the package-lock.json in another one pins.

    Raises:
        Unavailable: it cannot be installed.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise Unavailable("it needs Node, and there is no npm on PATH")
    if not _is_current(folder, source / "package-lock.json"):
        for name in ("package.json", "package-lock.json"):
            shutil.copy(source / name, folder / name)
        # npm warns if Node is older than the packages require; they run on the Node that is installed with them.
        _run([npm, "ci", "--no-audit", "--no-fund", "--loglevel=error"], folder)
        _note(folder, source / "package-lock.json")


def _node(folder: Path) -> str:
    installed = next(folder.glob("node_modules/node-*/bin/node"), None)
    found = str(installed) if installed else shutil.which("node")
    if found is None:
        raise Unavailable("there is no Node for this machine in its registry, and none on PATH")
    return found


def _for_python(peer: Peer) -> list[str]:
    python = for_pins(FOLDER / peer.requirements.stem, peer.requirements, _python(peer))
    return [str(python), str(PROGRAMS / peer.program)]


def for_pins(folder: Path, pins: Path, base: str = sys.executable) -> Path:
    """Install into a folder the Python packages that a file pins; return the Python that has them.

    Raises:
        Unavailable: they cannot be installed.
    """
    python = folder / "venv" / "bin" / "python"
    if not _is_current(folder, pins):
        uv = _uv()
        _run([uv, "venv", "--quiet", "--clear", "--no-managed-python", "--python", base, "venv"], folder)
        _run([uv, "pip", "install", "--quiet", "--python", str(python), "-r", str(pins)], folder)
        _note(folder, pins)
    return python


def _python(peer: Peer) -> str:
    """Return a Python that is new enough: its path, or a version for uv to find."""
    if sys.version_info >= peer.python:
        return sys.executable
    wanted = f">={peer.python[0]}.{peer.python[1]}"
    looked = subprocess.run(
        [_uv(), "python", "find", "--no-managed-python", wanted], capture_output=True, text=True, check=False
    )
    if looked.returncode != 0:
        raise Unavailable(f"it needs Python {wanted.removeprefix('>=')} or newer, and there is none on PATH")
    return looked.stdout.strip()


def _uv() -> str:
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if beside.exists() else shutil.which("uv")
    if found is None:
        raise Unavailable("there is no uv: start the benchmarks by `./go bench`")
    return found


def _is_current(folder: Path, pins: Path) -> bool:
    """Return whether these pins are installed; make the folder otherwise."""
    folder.mkdir(parents=True, exist_ok=True)
    stamp = folder / "installed"
    return stamp.exists() and stamp.read_text() == pins.read_text()


def _note(folder: Path, pins: Path) -> None:
    shutil.copy(pins, folder / "installed")


def _run(command: list[str], folder: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name not in {"VIRTUAL_ENV", "PYTHONPATH"}}
    try:
        done = subprocess.run(
            command, cwd=folder, env=env, capture_output=True, text=True, timeout=WITHIN_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"`{Path(command[0]).name}` did not install it within {WITHIN_S} s") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines() or ["nothing"]
        raise Unavailable(f"`{Path(command[0]).name} {command[1]}` failed: {said[0]}")
