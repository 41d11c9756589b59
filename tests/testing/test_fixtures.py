"""The fixtures of all tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from tests import conftest
from tests.server.postgres import Postgres

CHECKOUT = Path(__file__).parents[2]
# What pyproject.toml configures; to import all other plugins takes longer than these sessions.
PLUGINS = ["-p", "xdist.plugin", "-p", "pytest_timeout"]
ENVIRON = {**os.environ, "PYTEST_ADDOPTS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


class TestDatabases:
    """Databases of one test."""

    def test_a_database_is_dropped_at_the_end_even_with_open_connections(self, server: Postgres) -> None:
        with server.new_database() as left:
            open_connection = psycopg.connect(left.dsn)

        with server.admin() as conn:
            assert not conn.execute("SELECT FROM pg_database AS d WHERE d.datname = %s", [left.name]).fetchall()
        with pytest.raises(psycopg.OperationalError):
            open_connection.execute("SELECT 1")
        open_connection.close()


class TestEventually:
    """Waiting for a condition."""

    def test_eventually_raises_the_last_failed_assertion_at_its_deadline(self, eventually: Callable[..., Any]) -> None:
        def never() -> bool:
            raise AssertionError("depth is 3")

        with pytest.raises(AssertionError, match="depth is 3"):
            eventually(never, within_s=0)

    def test_eventually_reports_the_last_result_at_its_deadline(self, eventually: Callable[..., Any]) -> None:
        with pytest.raises(AssertionError, match=r"still not so after 0 s: .* returned \[\]"):
            eventually(list, within_s=0)


def test_files_that_take_long_begin_before_the_others() -> None:
    marks = [("a", None), ("b", None), ("b", "slow"), ("c", None)]
    items = [SimpleNamespace(path=path, name="test", get_closest_marker={mark: mark}.get) for path, mark in marks]

    list(conftest.pytest_collection_modifyitems(items))

    assert [item.path for item in items] == ["b", "b", "a", "c"]


class TestSkipping:
    """Sessions of pytest with one file of tests, with and without PGROUSE_TEST_NO_SKIP."""

    FILE = """
import pytest

def test_of_a_missing_server(db): pass

@pytest.mark.xfail(reason="known")
def test_known_to_fail(): assert False
"""

    @staticmethod
    def run(folder: Path, content: str, **environment: str) -> subprocess.CompletedProcess[str]:
        file = folder / "test_some.py"
        file.write_text(content)
        settings = ["-c", "pyproject.toml", "-p", "no:cacheprovider", "-p", "tests.conftest", f"--rootdir={folder}"]
        return subprocess.run(
            [sys.executable, "-m", "pytest", *PLUGINS, *settings, "--pg=16", str(file)],
            cwd=CHECKOUT,
            env={**ENVIRON, "PGROUSE_TEST_NO_SKIP": "", **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    @pytest.mark.long
    def test_a_missing_server_is_reported_in_the_header_and_skips_its_tests_with_the_reason(
        self, tmp_path: Path
    ) -> None:
        output = self.run(tmp_path, self.FILE)

        assert (
            "database 16: missing: on Debian and its kin, as root: `apt-get install postgresql-16 postgresql-16-cron`"
            in output.stdout
        )
        assert re.search(r"SKIPPED \[1\] .*conftest.py:0: no PostgreSQL 16 with pg_cron is installed", output.stdout)
        assert "1 skipped, 1 xfailed" in output.stdout
        assert output.returncode == 0

    @pytest.mark.long
    def test_a_missing_server_is_a_failure_if_skips_are_forbidden(self, tmp_path: Path) -> None:
        output = self.run(tmp_path, self.FILE, PGROUSE_TEST_NO_SKIP="1")

        assert "1 xfailed, 1 error" in output.stdout
        assert "not skipped, because PGROUSE_TEST_NO_SKIP is set" in output.stdout
        assert output.returncode == 1

    @pytest.mark.long
    def test_a_file_that_skips_itself_is_a_failure_if_skips_are_forbidden(self, tmp_path: Path) -> None:
        output = self.run(tmp_path, "import pytest; pytest.importorskip('no_such_module')", PGROUSE_TEST_NO_SKIP="1")

        assert "1 error" in output.stdout
        assert output.returncode != 0


class TestServers:
    """Which tests run on which servers, when two are available and one is not installed."""

    @staticmethod
    def collected(*arguments: str) -> dict[str, set[str]]:
        """Return on how many servers the tests of two files would run: a file about the server, and another one."""
        files = ["tests/sql/wake/test_notify.py", "tests/sql/audit/test_audit_change.py"]
        output = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", *PLUGINS),
                *("--collect-only", "-q", "-p", "no:cacheprovider", *files, *arguments),
            ],
            cwd=CHECKOUT,
            # The servers then are the declared ones, and not the installed ones.
            env={**ENVIRON, "PGROUSE_TEST_PG": "", "PGROUSE_TEST_NO_SKIP": "1"},
            capture_output=True,
            text=True,
            check=True,
        )
        return {file: set(re.findall(rf"{file}::\S+\[(\d+)", output.stdout)) for file in files}

    @pytest.mark.long
    def test_tests_of_the_server_run_on_all_and_others_on_one(self) -> None:
        about_it, not_about_it = self.collected().values()

        assert len(about_it) > 1
        assert len(not_about_it) == 1

    @pytest.mark.long
    def test_pg_all_runs_the_tests_of_sql_on_all_servers(self) -> None:
        about_it, not_about_it = self.collected("--pg=all").values()

        assert len(about_it) > 1
        assert not_about_it == about_it
