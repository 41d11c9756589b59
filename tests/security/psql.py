"""Run a file of the repository as a person does: with psql."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.server.postgres import Database

ROOT = Path(__file__).parents[2]
# What a person may have in ~/.psqlrc. The first lets a script go on after an error; the last would replace `:a` and
# `:text` in a script.
PSQLRC = """
\\set ON_ERROR_ROLLBACK on
\\set ON_ERROR_STOP off
\\set a 1
\\set text 1
"""

needs_psql = pytest.mark.skipif(
    shutil.which("psql") is None or shutil.which("pg_dump") is None,
    reason="psql or pg_dump is missing: install the client of PostgreSQL",
)


def run(path: str, database: Database, home: Path, **settings: str) -> str:
    """Run a script of SQL or of the shell as the superuser, with settings of the session; return what it said.

    `home` is the home of the user, which may have a .psqlrc.
    """
    server = conninfo_to_dict(database.dsn)
    env = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    env |= {f"PG{key.upper()}": str(server[key]) for key in ("host", "port", "user", "password") if key in server}
    env |= {"PGDATABASE": database.name, "HOME": str(home)}
    env["PGOPTIONS"] = " ".join(f"-c {name}={value.replace(' ', '')}" for name, value in settings.items())
    command = ["bash", path, "."] if path.endswith(".sh") else ["psql", "-f", path]
    ended = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False)
    return ended.stdout + ended.stderr
