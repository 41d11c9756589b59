"""The fixtures that all tests stand on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.server.postgres import Database, Postgres

CHECKOUT = Path(__file__).parents[1]


class TestDatabases:
    """Databases of a test's own."""

    def test_an_empty_one_has_no_schema(self, empty_database: Database) -> None:
        conn = empty_database.connect()

        assert conn.execute("SELECT to_regnamespace('messages')").fetchone() == (None,)

    def test_a_migrated_one_has_the_schema_and_no_message(
        self, database: Database, db: psycopg.Connection[Any]
    ) -> None:
        assert db.info.dbname == database.name
        assert db.execute("SELECT count(*) FROM messages.message").fetchone() == (0,)

    def test_one_that_is_left_is_gone_whoever_is_connected(self, server: Postgres) -> None:
        with server.new_database() as left:
            stranger = psycopg.connect(left.dsn)

        with server.admin() as conn:
            assert not conn.execute("SELECT FROM pg_database AS d WHERE d.datname = %s", [left.name]).fetchall()
        with pytest.raises(psycopg.OperationalError):
            stranger.execute("SELECT 1")
        stranger.close()

    def test_its_connections_are_closed_when_it_is_left(self, server: Postgres) -> None:
        with server.new_database() as left:
            conn = left.connect(autocommit=False)

        assert conn.closed
        assert not conn.autocommit

    @pytest.mark.pg_cron
    def test_the_jobs_of_pg_cron_are_kept_beside_the_tests_databases(self, server: Postgres) -> None:
        with server.admin(server.cron_database) as conn:
            conn.execute("SELECT FROM cron.job")


def test_a_private_server_can_be_killed_without_harm_to_others(private_server: Postgres, server: Postgres) -> None:
    private_server.place.kill()

    with pytest.raises(psycopg.OperationalError):
        private_server.admin()
    with server.admin() as conn:
        assert conn.execute("SELECT 1").fetchone() == (1,)


class TestEventually:
    """Waiting for a condition."""

    def test_what_the_condition_returned_is_returned(self, eventually: Callable[..., Any]) -> None:
        answers = iter([None, 0, "", 7])

        assert eventually(lambda: next(answers), every_s=0) == 7

    def test_a_failed_assertion_is_tried_again(self, eventually: Callable[..., Any]) -> None:
        answers = iter([1, 2, 3])

        def three() -> bool:
            assert next(answers) == 3
            return True

        assert eventually(three, every_s=0)

    def test_when_the_time_is_over_the_last_failed_assertion_is_raised(self, eventually: Callable[..., Any]) -> None:
        def never() -> bool:
            raise AssertionError("depth is 3")

        with pytest.raises(AssertionError, match="depth is 3"):
            eventually(never, within_s=0)

    def test_when_the_time_is_over_it_says_what_was_returned(self, eventually: Callable[..., Any]) -> None:
        with pytest.raises(AssertionError, match=r"still not so after 0 s: .* returned \[\]"):
            eventually(list, within_s=0)


class TestSkipping:
    """Sessions of pytest with one file of tests, with and without PGROUSE_TEST_NO_SKIP."""

    FILE = """
import pytest

def test_of_a_server_that_nobody_has(db): pass

@pytest.mark.xfail(reason="known")
def test_known_to_fail(): assert False
"""

    @staticmethod
    def run(folder: Path, content: str, **environment: str) -> subprocess.CompletedProcess[str]:
        file = folder / "test_some.py"
        file.write_text(content)
        settings = ["-c", "pyproject.toml", "-p", "no:cacheprovider", "-p", "tests.conftest", f"--rootdir={folder}"]
        return subprocess.run(
            [sys.executable, "-m", "pytest", *settings, "--pg=16", str(file)],
            cwd=CHECKOUT,
            env={**os.environ, "PYTEST_ADDOPTS": "", "PGROUSE_TEST_NO_SKIP": "", **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    def test_a_missing_server_is_said_at_the_head_and_skips_its_tests_with_the_reason(self, tmp_path: Path) -> None:
        said = self.run(tmp_path, self.FILE)

        assert (
            "database 16: missing: on Debian and its kin, as root: `apt-get install postgresql-16 postgresql-16-cron`"
            in said.stdout
        )
        assert re.search(r"SKIPPED \[1\] .*conftest.py:0: no PostgreSQL 16 with pg_cron is installed", said.stdout)
        assert "1 skipped, 1 xfailed" in said.stdout
        assert said.returncode == 0

    def test_where_everything_must_be_there_it_fails_instead(self, tmp_path: Path) -> None:
        said = self.run(tmp_path, self.FILE, PGROUSE_TEST_NO_SKIP="1")

        assert "1 xfailed, 1 error" in said.stdout
        assert "not skipped, because PGROUSE_TEST_NO_SKIP is set" in said.stdout
        assert said.returncode == 1

    def test_there_a_file_that_skips_itself_fails_too(self, tmp_path: Path) -> None:
        said = self.run(tmp_path, "import pytest; pytest.importorskip('nobody_has_this')", PGROUSE_TEST_NO_SKIP="1")

        assert "1 error" in said.stdout
        assert said.returncode != 0


class TestServers:
    """Which tests run on which servers, when two can be had and one is not installed."""

    @staticmethod
    def collected(*arguments: str) -> dict[str, set[str]]:
        """Return on how many servers the tests of two files would run: of one that is about the server, and of one that is not."""
        files = ["tests/sql/test_notify.py", "tests/sql/test_now.py"]
        said = subprocess.run(
            [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *files, *arguments],
            cwd=CHECKOUT,
            # So that the servers are those that must be there, and not those that are.
            env={**os.environ, "PYTEST_ADDOPTS": "", "PGROUSE_TEST_PG": "", "PGROUSE_TEST_NO_SKIP": "1"},
            capture_output=True,
            text=True,
            check=True,
        )
        return {file: set(re.findall(rf"{file}::\S+\[(\d+)", said.stdout)) for file in files}

    def test_what_is_about_the_server_runs_on_all_and_the_rest_on_one(self) -> None:
        about_it, not_about_it = self.collected().values()

        assert len(about_it) > 1
        assert len(not_about_it) == 1

    def test_all_tests_of_sql_run_on_all_servers_if_asked(self) -> None:
        about_it, not_about_it = self.collected("--pg=all").values()

        assert len(about_it) > 1
        assert not_about_it == about_it

    def test_all_tests_of_sql_run_on_the_servers_that_are_named(self) -> None:
        assert list(self.collected("--pg=15,18").values()) == [{"15", "18"}] * 2
