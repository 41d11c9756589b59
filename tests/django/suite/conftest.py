"""A project of Django, on a database of tests that Django makes; and daemons that work it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import setup_databases, teardown_databases
from psycopg.conninfo import make_conninfo

from pgrouse.testing import clean
from tests.daemon import preloaded

HERE = Path(__file__).parent


def until(condition, within_s=60):
    """Wait for a condition; return what it has returned."""
    end = time.monotonic() + within_s
    while not (found := condition()):
        if time.monotonic() > end:
            pytest.fail(f"not within {within_s} s")
        time.sleep(0.01)
    return found


def ended(result):
    """Wait until a task has ended; return its result."""

    def refreshed():
        result.refresh()
        return result.is_finished

    until(refreshed)
    return result


PROGRAM = HERE / "manage.py"
# What a project imports that needs no settings.
IMPORTS = (
    "django.core.management",
    "django.db.backends.postgresql.base",
    "django.db.models",
    "django.forms",
    "django.template.loader",
    "django.urls",
    "pgrouse.cli.background.run",
    "pgrouse.contrib.django.project",
)


class Manage:
    """`manage.py` in a process of its own, on the database of the tests.

    It is a fork of a process that has imported its modules, or `executed`.
    """

    def __init__(self, folder):
        self.folder = folder
        self.started = []

    def environ(self, settings):
        url = make_conninfo(os.environ["DATABASE_URL"], dbname=connection.settings_dict["NAME"])
        return {**os.environ, "DATABASE_URL": url, "SETTINGS": json.dumps(settings)}

    def executed(self, *arguments):
        """Run a command to its end, as users do."""
        command = [sys.executable, PROGRAM, *arguments]
        return subprocess.run(command, cwd=HERE, env=self.environ({}), capture_output=True, text=True, check=False)

    def __call__(self, *arguments, **settings):
        """Run a command to its end."""
        env = self.environ(settings)
        return preloaded.run(PROGRAM, *arguments, cwd=HERE, env=env, folder=self.folder, imports=IMPORTS)

    def start(self, *arguments, processes=1, **settings):
        """Start a daemon; return when it is armed."""
        log = self.folder / f"log-{len(self.started)}"
        env = self.environ(settings)
        process = preloaded.Forked(PROGRAM, "pgrouse", *arguments, cwd=HERE, env=env, log=log, imports=IMPORTS)
        process.log = log
        self.started.append(process)
        self.until_armed(process, processes)
        return process

    def until_armed(self, process, processes=1):
        def armed():
            if process.poll() is not None:
                pytest.fail(process.log.read_text())
            with connection.cursor() as cursor:
                cursor.execute("SELECT count(*) FROM messages.sleeper WHERE armed_until > clock_timestamp()")
                return cursor.fetchone()[0] >= processes

        until(armed)

    def kill(self):
        for process in self.started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)


def end_other_sessions():
    """End the sessions of daemons that were killed: the server may not have noticed."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


@pytest.fixture(scope="session")
def django_db_setup(django_test_environment, django_db_blocker):
    """The database of the tests, also if none of them is marked: those of `manage` are not."""
    with django_db_blocker.unblock():
        made = setup_databases(verbosity=0, interactive=False)
    yield
    with django_db_blocker.unblock():
        end_other_sessions()
        teardown_databases(made, verbosity=0)


@contextmanager
def managed(blocker, folder):
    """A `Manage` on the database as it is: what tests do is committed, and removed at the end."""
    with blocker.unblock():
        connection.ensure_connection()
        it = Manage(folder)
        yield it
        it.kill()
        end_other_sessions()
        clean(connection.connection)
        User.objects.all().delete()


@pytest.fixture
def manage(django_db_setup, django_db_blocker, tmp_path):
    """`manage("pgrouse", "stats")` runs a command; `manage.start("run")` a daemon."""
    with managed(django_db_blocker, tmp_path) as it:
        yield it


@pytest.fixture(scope="module")
def worker(django_db_setup, django_db_blocker, tmp_path_factory):
    """A daemon that processes the tasks of the project, for all tests of a file."""
    with managed(django_db_blocker, tmp_path_factory.mktemp("worker")) as it:
        it("pgrouse", "migrate")
        yield it.start("run")
