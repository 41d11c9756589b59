"""The plugin for pytest: what a user's test gets, run by a pytest of its own."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from pgrouse.testing import DatabaseUrl
from tests.server.postgres import Database, Postgres

TESTS = """
import asyncio
import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine
from pgrouse import publish, wait_for


@pytest.fixture
def conn(pgrouse_database):
    with psycopg.connect(pgrouse_database, autocommit=True) as conn:
        yield conn


def test_a_worker_works_beside_the_test(conn, pgrouse_database, pgrouse_worker, published):
    pgrouse_worker(handlers={"double": lambda payload: payload * 2})
    message_id = publish(conn, "double", 21)
    assert wait_for(pgrouse_database, message_id, timeout=60).output == 42
    assert [each["payload"] for each in published("double")] == [21]
    assert published("other") == []


def test_the_queue_is_empty_again(conn, published):
    assert published() == []


def test_the_file_of_the_application_is_worked_in_the_database_of_the_tests(conn, pgrouse_database, pgrouse_worker):
    worker = pgrouse_worker("shop.toml", concurrency=3)
    message_id = publish(conn, "orders.created", {})
    assert wait_for(pgrouse_database, message_id, timeout=60).output == "created"
    assert worker.is_running


@pytest.mark.parametrize("scheme", ["postgresql+psycopg", "postgresql"])
def test_sqlalchemy_reads_its_url(pgrouse_database, scheme):
    url = sqlalchemy.make_url(pgrouse_database.url(scheme))
    assert url.database == psycopg.conninfo.conninfo_to_dict(pgrouse_database)["dbname"]
"""


def run_tests(folder: Path, server: Postgres, *options: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PGROUSE_TEST_DSN": server.dsn(), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-p", "pgrouse.pytest_plugin", "-p", "no:cacheprovider", "-q", *options]
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)


def test_users_get_a_database_a_worker_and_what_was_published(tmp_path: Path, server: Postgres) -> None:
    (tmp_path / "test_shop.py").write_text(TESTS)
    (tmp_path / "shop_handlers.py").write_text("def order_created(payload):\n    return 'created'\n")
    (tmp_path / "shop.toml").write_text(
        '[database]\ndsn = "dbname=another"\nlisten_dsn = "dbname=another"\n'
        '[topics."orders.created"]\nhandler = "shop_handlers:order_created"\n'
    )

    done = run_tests(tmp_path, server)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout


def test_a_test_that_uses_no_fixture_pays_nothing(tmp_path: Path, server: Postgres) -> None:
    (tmp_path / "test_nothing.py").write_text(
        "import sys\ndef test_nothing():\n    assert not {'psycopg', 'pydantic', 'structlog'} & set(sys.modules)\n"
    )

    done = run_tests(tmp_path, server)

    assert done.returncode == 0, done.stdout + done.stderr


class TestUrl:
    """testing.database() yields one."""

    async def _asyncpg(self, url: DatabaseUrl) -> str:
        conn = await asyncpg.connect(url)
        try:
            return str(await conn.fetchval("SELECT current_database()"))
        finally:
            await conn.close()

    async def _sqlalchemy(self, url: str) -> str:
        engine = create_async_engine(url, poolclass=NullPool)
        async with engine.connect() as conn:
            return str((await conn.execute(sqlalchemy.text("SELECT current_database()"))).scalar())

    @pytest.mark.parametrize("driver", ["psycopg", "asyncpg", "postgresql+psycopg", "postgresql+asyncpg"])
    def test_every_driver_connects(self, database: Database, driver: str) -> None:
        url = DatabaseUrl.of(database.dsn)
        if driver == "psycopg":
            with psycopg.connect(url) as conn:
                found = conn.info.dbname
        elif driver == "asyncpg":
            found = asyncio.run(self._asyncpg(url))
        else:
            found = asyncio.run(self._sqlalchemy(url.url(driver)))
        assert found == database.name

    def test_every_character_of_a_password_stays(self) -> None:
        dsn = psycopg.conninfo.make_conninfo(
            user="a b@c", password="p/:@?#%[ü'", host="h", dbname="d/1", port=1, sslmode="require"
        )

        url = DatabaseUrl.of(dsn)

        assert psycopg.conninfo.conninfo_to_dict(url) == psycopg.conninfo.conninfo_to_dict(dsn)
        assert sqlalchemy.make_url(url.url("postgresql+psycopg")).password == "p/:@?#%[ü'"

    def test_an_address_of_numbers_has_brackets(self) -> None:
        assert DatabaseUrl.of("host=::1 port=1 dbname=d") == "postgresql://[::1]:1/d"

    def test_a_url_stays_one(self) -> None:
        url = "postgresql://u:p@h:1/d?sslmode=require"
        assert DatabaseUrl.of(url) == url
