"""Tells the user how to use a demo that was left running."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

from pgrouse.config.dsn import redact
from pgrouse.demo.screen import Screen

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
