"""A file that a person or an image runs with psql installs the same for every user and setting.

It gives no right to anybody else.

The files are found by their names' ends, so that a new one is tested too.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from psycopg import sql

from pgrouse.database.install import pg_cron as cron
from pgrouse.database.install import schema
from tests.security import traps
from tests.security.psql import PSQLRC, ROOT, needs_psql, run
from tests.server.postgres import Database, Postgres

# These only work with what an image contains; see test_a_script_of_the_image_fixes_the_path_before_any_name.
IN_IMAGE = {"docker/examples.sql", *(str(p.relative_to(ROOT)) for p in ROOT.glob("docker/postgres/initdb.d/*.sh"))}
# Parts of statements, which others put together.
FRAGMENTS = {"sql/cron/jobs.sql", "sql/cron/prune_elsewhere.sql"}
# Folders whose files only migrate and install-schema.sh run, after they fixed the session.
INSTALLED = {path.parent for path in ROOT.glob("sql/*/*.sql")} - {ROOT / "sql/cron"}
OTHER_LANGUAGE = ("pipeline/", "bench/", "examples/schedulers/", "tests/")


def found(suffix: str) -> list[str]:
    """Return the files of the repository that end so, by their path."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", f"*{suffix}"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.split()  # fmt: skip
    return [path for path in sorted(listed) if not path.startswith(OTHER_LANGUAGE)]


def uses_psql(path: str) -> bool:
    return re.search(r"\bpsql\b", (ROOT / path).read_text()) is not None


SQL = [p for p in found(".sql") if (ROOT / p).parent not in INSTALLED and p not in FRAGMENTS | IN_IMAGE]
SHELL = [p for p in found(".sh") if uses_psql(p) and p not in IN_IMAGE]
# The files that need something that an empty database does not have.
NEEDS_SCHEMA = {"sql/pgmq.sql", "sql/settings.sql", "sql/grants.sql", "sql/cron/role.sql", "examples/schema.sql"}
NEEDS_PG_CRON = {"docker/postgres/install-cron.sh"}
# Those that fix the session themselves, and write where sessions only read by default.
INSTALLERS = {"sql/pgmq.sql", "docker/postgres/install-schema.sh"}

# What a user, a database or a superuser may have set.
SETTINGS = {
    "standard_conforming_strings": "off",
    "check_function_bodies": "off",
    "array_nulls": "off",
    "transform_null_equals": "on",
    "quote_all_identifiers": "on",
    "bytea_output": "escape",
    "DateStyle": "SQL, DMY",
    "IntervalStyle": "sql_standard",
    "TimeZone": "Asia/Kathmandu",
    "client_encoding": "LATIN1",
    "row_security": "off",
    "session_replication_role": "replica",
    "default_table_access_method": "strange",
    "default_transaction_isolation": "serializable",
    "plpgsql.variable_conflict": "use_variable",
    "plpgsql.extra_errors": "all",
}


def dump(database: Database) -> str:
    """Return everything that is in a database but for the traps and the key of signed URLs, which is random."""
    command = ["pg_dump", "--dbname", database.dsn, "--exclude-schema=traps", "--exclude-schema=public"]
    text = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
    moments = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\S*")
    lines = [line for line in text.splitlines() if not line.startswith(("\\restrict", "\\unrestrict"))]
    # As HMAC pads it: 32 random bytes, then 32 that are known.
    key = re.compile(r"\\\\x[0-9a-f]{64}(?:36){32}\t\\\\x[0-9a-f]{64}(?:5c){32}")
    return key.sub("KEY", moments.sub("MOMENT", "\n".join(lines)))


@pytest.fixture(autouse=True)
def _pg_dump_is_new_enough(request: pytest.FixtureRequest) -> None:
    """Skip a test that dumps a database of a server that is newer than pg_dump."""
    if "server" not in request.fixturenames or shutil.which("pg_dump") is None:
        return
    said = subprocess.run(["pg_dump", "--version"], check=True, capture_output=True, text=True).stdout
    major, server = int(re.findall(r"\d+", said)[0]), request.getfixturevalue("server")
    if major < server.version:
        pytest.skip(f"pg_dump is of PostgreSQL {major}, and the server is {server.version}: install its client")


def template(path: str, server: Postgres) -> str | None:
    """Return which database to copy: one that has what a file needs, and no more."""
    return server.migrated if path in NEEDS_SCHEMA | NEEDS_PG_CRON else None


@pytest.fixture
def fresh(path: str, server: Postgres) -> Iterator[Database]:
    """A database that has what the file of the test needs."""
    with server.new_database(template(path, server)) as database:
        yield database


@pytest.fixture(scope="module")
def expected(server: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a function that reads what is in a database in which a file ran.

    The file ran without traps and with PostgreSQL's settings.
    """

    @cache
    def installed(path: str) -> str:
        with server.new_database(template(path, server)) as database:
            run(path, database, tmp_path_factory.mktemp("home"))
            return dump(database)

    return installed


def test_all_files_are_found() -> None:
    assert {"sql/pgmq.sql", "sql/roles.sql", "sql/session.sql", "examples/schema.sql"} <= set(SQL)
    assert {"docker/postgres/install-schema.sh", "docker/postgres/install-cron.sh"} <= set(SHELL)


@needs_psql
@pytest.mark.parametrize("path", [p for p in SQL + SHELL if p not in NEEDS_PG_CRON])
def test_a_file_calls_no_trap_and_installs_the_same(
    path: str, server: Postgres, new_trapped: Any, expected: Any, tmp_path: Path
) -> None:
    with new_trapped(template(path, server)) as database:
        said = run(path, database, tmp_path)

        assert not traps.caught(said), said
        assert "ERROR" not in said
        assert dump(database) == expected(path)


@needs_psql
@pytest.mark.parametrize("path", [p for p in SQL + SHELL if p not in NEEDS_PG_CRON and not p.startswith("examples/")])
def test_a_file_installs_the_same_under_any_setting(path: str, fresh: Database, expected: Any, tmp_path: Path) -> None:
    admin = fresh.connect()
    admin.execute("CREATE ACCESS METHOD strange TYPE TABLE HANDLER heap_tableam_handler")
    (tmp_path / ".psqlrc").write_text(PSQLRC)

    read_only = {"default_transaction_read_only": "on"} if path in INSTALLERS else {}
    said = run(path, fresh, tmp_path, **SETTINGS, **read_only)

    assert "ERROR" not in said, said
    admin.execute("DROP ACCESS METHOD strange")
    assert dump(fresh) == expected(path)


@needs_psql
def test_the_script_of_the_image_installs_what_migrate_installs(database: Database, expected: Any) -> None:
    assert expected("docker/postgres/install-schema.sh") == dump(database)


@needs_psql
@pytest.mark.pg_cron
def test_the_jobs_of_pg_cron_are_installed_without_a_trap(server: Postgres, tmp_path: Path) -> None:
    database = Database(server, server.cron_database)
    admin = database.connect()
    try:
        schema.migrate(admin)
        traps.plant(admin)

        said = run("docker/postgres/install-cron.sh", database, tmp_path)

        assert not traps.caught(said), said
        assert "ERROR" not in said
        assert cron.check(admin) == []
    finally:
        admin.execute(sql.SQL("ALTER DATABASE {} RESET search_path").format(sql.Identifier(database.name)))
        cron.remove(admin)
        admin.execute("DROP SCHEMA traps CASCADE; DROP SCHEMA messages CASCADE")
        database.disconnect()


@pytest.mark.parametrize("path", sorted(IN_IMAGE))
def test_a_script_of_the_image_fixes_the_path_before_any_name(path: str) -> None:
    text = (ROOT / path).read_text()
    first = re.findall(r"<<'SQL'\n(.*)", text) if path.endswith(".sh") else re.findall(r"^(?!--)(.+)", text)[:1]

    assert set(first) <= {"SET search_path = pg_catalog, pg_temp;"}
    assert first or not uses_psql(path)
    assert re.search(r"<<<|--command| -c |--file| -f ", text) is None
