"""examples/fastapi_shop: its own tests, and its one command."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from tests.server.postgres import Database, Postgres

EXAMPLE = Path(__file__).parents[2] / "examples" / "fastapi_shop"


@pytest.mark.long
def test_its_own_tests_pass(server: Postgres, tmp_path: Path) -> None:
    environ = {**os.environ, "PGROUSE_TEST_DSN": server.dsn(), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    copied = shutil.copytree(EXAMPLE, tmp_path / "fastapi_shop")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "pgrouse.pytest_plugin", "-p", "no:cacheprovider"]

    done = subprocess.run(
        [*command, "-W", "error"], cwd=copied, env=environ, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_one_command_serves_it(empty_database: Database, tmp_path: Path, eventually: Callable[..., Any]) -> None:
    """From an empty database to points; and SIGTERM ends it in order, with a page of the dashboard open."""
    environ = {**os.environ, "DATABASE_URL": empty_database.dsn, "PORT": "0"}
    log = tmp_path / "log"
    with log.open("w") as output:
        shop = subprocess.Popen([sys.executable, str(EXAMPLE / "run.py")], env=environ, stdout=output, stderr=output)
    try:
        (url,) = eventually(lambda: re.findall(r"running on (http://[\d.:]+)", log.read_text()), within_s=120)
        (key,) = re.findall(r"/staff/(\S+)", log.read_text())
        with httpx.Client(base_url=url, timeout=60) as client:
            made = client.post("/orders", json={"customer": "Ada", "cents": 1250}).json()
            eventually(lambda: client.get(f"/orders/{made['id']}").json()["points"] == 12)
            client.get(f"/staff/{key}")
            with client.stream("GET", "/queue/live/topics") as stream:
                lines = stream.iter_lines()
                next(lines)
                shop.send_signal(signal.SIGTERM)
                for _ in lines:
                    pass
        assert shop.wait(60) in (0, -signal.SIGTERM)
    finally:
        shop.kill()
        shop.wait()
    text = log.read_text()
    assert "Traceback" not in text, text
    assert "Application shutdown complete" in text, text
    with psycopg.connect(empty_database.dsn) as conn:
        assert conn.execute("SELECT result FROM messages.message_archive").fetchall() == [("success",)]
        assert conn.execute("SELECT count(*) FROM messages.worker").fetchone() == (0,)
