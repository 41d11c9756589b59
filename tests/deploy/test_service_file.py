"""A service file of libpq, as every deployment has it, is enough for pgrouse to find its database."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

from tests.cli.shell import PGROUSE
from tests.server.postgres import Database


def test_the_database_is_found_by_a_service_file_alone(database: Database, tmp_path: Path) -> None:
    named = "".join(f"{key}={value}\n" for key, value in conninfo_to_dict(database.dsn).items())
    file = tmp_path / "pg_service.conf"
    file.write_text(f"[pgrouse]\n{named}")
    others = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "DATABASE_URL"))}

    done = subprocess.run(
        [PGROUSE, "health", "--no-worker"],
        capture_output=True,
        text=True,
        check=False,
        env=others | {"PGSERVICEFILE": str(file), "PGSERVICE": "pgrouse"},
        cwd=tmp_path,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert "fits this version" in done.stdout
