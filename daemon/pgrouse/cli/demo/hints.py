"""Tells the user how to use a demo that was left running."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import sys
import time
import urllib.request
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from pgrouse.cli.demo.screen import Screen
from pgrouse.cli.demo.worker import DemoWorkers
from pgrouse.config.dsn import redact

INSERT = """insert into messages.message (topic, payload) values ('orders.created', '{"id": 7}');"""

INTRODUCED = {
    "look": "with psql, and with the commands of pgrouse:",
    "publish": "in psql, or:",
    "stop": "the daemons, then the server:",
}


def tell(dsn: str, given: str | None, logs: Path, dashboard: str | None, screen: Screen) -> None:
    """Print how to see it, to connect, to publish and to stop.

    A user's password is not shown; the private server's is useless to anyone else.
    """
    shown = shlex.quote(redact(given) if given else dsn)
    pgrouse = _command()
    screen.tell("kept", f"the database and two daemons go on running; the daemons' logs are in {logs}")
    if dashboard is not None:
        screen.tell("dashboard", "in a browser:")
        screen.quote(dashboard)
    else:
        screen.tell("dashboard", "there is none without: pip install 'pgrouse[web]'")
    for label, commands in {
        "look": [f"psql {shown}", f"export PGROUSE_DSN={shown}", f"{pgrouse} stats", f"{pgrouse} dead list"],
        "publish": [INSERT, f"{pgrouse} publish orders.created '{{\"id\": 8}}'"],
        "stop": [f"{pgrouse} demo --stop{f' --dsn {shown}' if given else ''}"],
    }.items():
        screen.tell(label, INTRODUCED[label])
        for each in commands:
            screen.quote(each)


def _command() -> str:
    """Return the command with which the user runs this pgrouse."""
    if shutil.which("pgrouse"):
        return "pgrouse"
    return os.path.relpath(Path(sys.executable).with_name("pgrouse"))


# The port where `pgrouse web` listens by default; the demo uses any other port if this one is in use.
PORT = 8420
ANSWERS_WITHIN_S = 60.0
NEEDS = ("fastapi", "uvicorn", "jinja2", "python_multipart")


def is_installed() -> bool:
    """Return whether the packages of a web server are installed: the extra `web`."""
    return all(find_spec(each) for each in NEEDS)


def start_dashboard(workers: DemoWorkers, config: Path) -> str | None:
    """Start the web server, and return its address as soon as it answers; None: it is not installed.

    Raises:
        WorkerDied: it ended at once.
    """
    if not is_installed():
        return None
    address = f"127.0.0.1:{_port()}"
    process = workers.start_other("web", ["web", "--config", str(config), "--listen", address])
    deadline = time.monotonic() + ANSWERS_WITHIN_S
    while not _answers(address) and time.monotonic() < deadline:
        process.check()
        time.sleep(0.05)
    return f"http://{address}"


def _port() -> int:
    for port in (PORT, 0):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)) as found:
            return int(found.getsockname()[1])
    return PORT


def _answers(address: str) -> bool:
    with suppress(OSError), urllib.request.urlopen(f"http://{address}/livez", timeout=1) as answer:
        return bool(answer.status == 200)  # noqa: PLR2004
    return False
