"""The dashboard of a demo that is kept running: a web server that only this machine reaches."""

from __future__ import annotations

import socket
import time
import urllib.request
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from pgrouse.demo.worker import DemoWorkers

# The port where `pgrouse web` listens by default; the demo uses any other port if this one is in use.
PORT = 8420
ANSWERS_WITHIN_S = 60.0
NEEDS = ("fastapi", "uvicorn", "jinja2", "python_multipart")


def is_installed() -> bool:
    """Return whether the packages of a web server are installed: the extra `web`."""
    return all(find_spec(each) for each in NEEDS)


def start(workers: DemoWorkers, config: Path) -> str | None:
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
