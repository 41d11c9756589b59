"""pgbench: many clients with a low cost."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from bench.postgres import Database, Postgres

SCRIPTS = Path(__file__).parent / "sql"


def run_for(postgres: Postgres, database: Database, script: str, *, clients: int, seconds: int) -> tuple[float, int]:
    """Run a script of `sql/` repeatedly for some seconds; return the transactions per second, and their number."""
    output = _run(postgres, database, script, clients, ["--time", str(seconds)], {})
    return float(_number("tps = ", output)), int(_number("number of transactions actually processed: ", output))


def run_times(
    postgres: Postgres, database: Database, script: str, *, clients: int, times: int, settings: dict[str, str]
) -> None:
    """Run a script of `sql/` a number of times in total, divided among the clients, with settings of the server."""
    _run(postgres, database, script, clients, ["--transactions", str(times // clients)], settings)


def _number(before: str, text: str) -> str:
    found = re.search(rf"^{before}([\d.]+)", text, re.MULTILINE)
    if found is None:
        raise SystemExit(f"pgbench did not say `{before}`:\n{text}")
    return found[1]


def _run(
    postgres: Postgres, database: Database, script: str, clients: int, how_long: list[str], settings: dict[str, str]
) -> str:
    command = [
        *(str(postgres.program("pgbench")), "--no-vacuum", "--protocol", "prepared"),
        *("--client", str(clients), "--jobs", str(min(clients, 2)), "--file", str(SCRIPTS / script), *how_long),
        database.dsn,
    ]
    env = {**os.environ, "PGOPTIONS": " ".join(f"-c {name}={value}" for name, value in settings.items())}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"pgbench {script} failed:\n{done.stderr}")
    return done.stdout
