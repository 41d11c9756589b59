"""pgbench: many clients that cost little themselves."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from bench.ground import Database, Ground

SCRIPTS = Path(__file__).parent / "sql"


def run_for(ground: Ground, database: Database, script: str, *, clients: int, seconds: int) -> tuple[float, int]:
    """Run a script of `sql/` again and again for some seconds; return the transactions per second, and how many there were."""
    said = _run(ground, database, script, clients, ["--time", str(seconds)], {})
    return float(_number("tps = ", said)), int(_number("number of transactions actually processed: ", said))


def run_times(
    ground: Ground, database: Database, script: str, *, clients: int, times: int, settings: dict[str, str]
) -> None:
    """Run a script of `sql/` so many times in all, shared by the clients, under settings of the server."""
    _run(ground, database, script, clients, ["--transactions", str(times // clients)], settings)


def _number(before: str, said: str) -> str:
    found = re.search(rf"^{before}([\d.]+)", said, re.MULTILINE)
    if found is None:
        raise SystemExit(f"pgbench did not say `{before}`:\n{said}")
    return found[1]


def _run(
    ground: Ground, database: Database, script: str, clients: int, how_long: list[str], settings: dict[str, str]
) -> str:
    command = [
        *(str(ground.program("pgbench")), "--no-vacuum", "--protocol", "prepared"),
        *("--client", str(clients), "--jobs", str(min(clients, 2)), "--file", str(SCRIPTS / script), *how_long),
        database.dsn,
    ]
    env = {**os.environ, "PGOPTIONS": " ".join(f"-c {name}={value}" for name, value in settings.items())}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"pgbench {script} failed:\n{done.stderr}")
    return done.stdout
