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

# An application with a table of its own, whose engine keeps connections to the template.
SHOP = """
import pytest
import sqlalchemy


@pytest.fixture(scope="session")
def pgrouse_template(pgrouse_template):
    engine = sqlalchemy.create_engine(pgrouse_template.dsn.url("postgresql+psycopg"))
    with engine.begin() as conn:
        conn.execute(sqlalchemy.text("CREATE TABLE shop_order (id int PRIMARY KEY)"))
        conn.execute(sqlalchemy.text("INSERT INTO messages.topic (topic, max_attempts) VALUES ('order', 3)"))
    return pgrouse_template
"""
OWN_DATABASES = """
import psycopg
import pytest
from pgrouse import publish
from pgrouse.testing import published


@pytest.mark.parametrize("n", range(6))
def test_each_has_a_database_with_the_tables_of_the_application(pgrouse_database, n):
    with psycopg.connect(pgrouse_database) as conn:
        conn.execute("INSERT INTO shop_order VALUES (1)")
        assert conn.execute("SELECT max_attempts FROM messages.topic WHERE topic = 'order'").fetchone() == (3,)
        conn.execute("UPDATE messages.topic SET max_attempts = 7 WHERE topic = 'order'")
        assert published(conn) == []
        publish(conn, "order", {"n": n})


def test_a_second_database_of_the_same_template(pgrouse_template, pgrouse_database):
    with pgrouse_template.copy() as other:
        assert other != pgrouse_database
        with psycopg.connect(other) as conn:
            conn.execute("INSERT INTO shop_order VALUES (1)")
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(other)


def test_the_template_is_closed(pgrouse_database, pgrouse_template):
    with pytest.raises(psycopg.OperationalError, match="not currently accepting connections"):
        psycopg.connect(pgrouse_template.dsn)
"""
LONG_LIVED = """
import psycopg
import pytest
from pgrouse import Worker, publish, wait_for


@pytest.fixture(scope="module")
def pgrouse_database(pgrouse_session_database):
    return pgrouse_session_database


@pytest.fixture(scope="module", autouse=True)
def application(pgrouse_database):
    with psycopg.connect(pgrouse_database, autocommit=True) as conn:
        conn.execute("INSERT INTO messages.topic (topic, max_attempts) VALUES ('double', 3)")
        conn.execute("INSERT INTO messages.schedule (name, cron, topic) VALUES ('nightly', '@daily', 'double')")
    with Worker(pgrouse_database, handlers={"double": lambda payload: payload * 2}, shutdown_timeout="1s") as worker:
        yield worker


@pytest.mark.parametrize("n", range(4))
def test_the_worker_goes_on_and_the_messages_are_gone(pgrouse_database, application, published, n):
    assert published() == []
    with psycopg.connect(pgrouse_database, autocommit=True) as conn:
        message_id = publish(conn, "double", n)
        publish(conn, "left", n, delay="1h", key="k")
        assert conn.execute("SELECT max_attempts FROM messages.topic WHERE topic = 'double'").fetchone() == (3,)
        assert conn.execute("SELECT name FROM messages.schedule").fetchall() == [("nightly",)]
    assert wait_for(pgrouse_database, message_id, timeout=60).output == n * 2
    assert application.is_running
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


def databases(server: Postgres) -> set[str]:
    with server.admin() as conn:
        return {name for (name,) in conn.execute("SELECT datname FROM pg_database WHERE datname ~ '^pgrouse_test_'")}


@pytest.mark.parametrize("options", [[], pytest.param(["-n", "2", "-p", "xdist"], marks=pytest.mark.long)])
def test_each_test_has_a_database_with_the_tables_of_the_application(
    tmp_path: Path, server: Postgres, options: list[str]
) -> None:
    (tmp_path / "conftest.py").write_text(SHOP)
    (tmp_path / "test_own.py").write_text(OWN_DATABASES)
    before = databases(server)

    done = run_tests(tmp_path, server, *options)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 passed" in done.stdout
    assert databases(server) == before


@pytest.mark.long
def test_a_worker_that_outlives_a_test_keeps_its_policies_and_schedules(tmp_path: Path, server: Postgres) -> None:
    (tmp_path / "test_long.py").write_text(LONG_LIVED)

    done = run_tests(tmp_path, server)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout


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
