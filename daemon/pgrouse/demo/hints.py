"""What to do with a demo that was left running."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

from pgrouse.demo.screen import Screen
from pgrouse.dsn import redact

INSERT = """insert into messages.message (topic, payload) values ('orders.created', '{"id": 7}');"""


def tell(dsn: str, given: str | None, logs: Path, screen: Screen) -> None:
    """Say how to connect, to publish and to stop. A password of the user's is not shown; the private server's is of no use to anyone else."""
    shown = shlex.quote(redact(given) if given else dsn)
    pgrouse = _command()
    screen.tell("kept", "the database and two daemons go on running; to look and to play:")
    for label, text in [
        ("connect", f"psql {shown}"),
        ("publish", f"  {INSERT}"),
        ("", f"export PGROUSE_DSN={shown}"),
        ("", f"{pgrouse} stats"),
        ("", f"{pgrouse} publish orders.created '{{\"id\": 8}}'"),
        ("", f"{pgrouse} dead list"),
        ("logs", str(logs)),
        ("stop", f"{pgrouse} demo --stop{f' --dsn {shown}' if given else ''}"),
    ]:
        screen.tell(label, text)


def _command() -> str:
    """Return what the user has to type for this very pgrouse."""
    if shutil.which("pgrouse"):
        return "pgrouse"
    return os.path.relpath(Path(sys.executable).with_name("pgrouse"))
