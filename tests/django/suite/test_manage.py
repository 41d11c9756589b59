"""`manage.py pgrouse`, and the schema with `manage.py migrate`."""

from __future__ import annotations

import json

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection, connections
from psycopg.conninfo import conninfo_to_dict
from work import tasks

from pgrouse.client.client import Client
from pgrouse.contrib.django import project
from pgrouse.contrib.django.apps import install_schema


def described(ended):
    return {each["key"]: (each.get("value"), each.get("origin")) for each in map(json.loads, ended.stdout.splitlines())}


@pytest.mark.django_db
def test_a_database_of_tests_has_the_schema_and_the_policies():
    assert Client(connection.connection).policy("work.tasks.fail_twice")["max_attempts"] == 3


def test_a_command_works_on_the_database_of_the_project(manage):
    tasks.add.enqueue(1)

    ended = manage.executed("pgrouse", "stats", "--json")

    assert ended.returncode == 0, ended.stderr
    assert "work.tasks.add" in ended.stdout


def test_a_command_ends_with_its_code_and_one_line(manage):
    ended = manage("pgrouse", "message", "show", "7")

    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.count("\n") == 1
    assert manage("pgrouse", "sats").stderr == (
        "pgrouse: there is no command 'sats'; did you mean 'stats'?: see `manage.py pgrouse --help`\n"
    )


@pytest.mark.parametrize("arguments", ["stats --settings=project.settings", "--settings project.settings stats"])
def test_the_options_of_manage_may_stand_anywhere(manage, arguments):
    assert manage("pgrouse", *arguments.split()).returncode == 0


def test_the_options_of_manage_may_stand_alone(manage):
    assert "migrate" in manage("pgrouse", "--settings", "project.settings").stdout


def test_the_file_wins_over_the_settings_and_the_environment_over_both(manage, tmp_path, monkeypatch):
    file = tmp_path / "pgrouse.toml"
    file.write_text('[worker]\nthreads = 7\nconcurrency = 8\n[topics."work.tasks.add"]\nconcurrency = 3\n')
    monkeypatch.setenv("PGROUSE_WORKER__CONCURRENCY", "9")
    monkeypatch.setenv("PGROUSE_CONFIG", str(file))

    shown = described(manage("pgrouse", "config", "show", "--json"))

    assert shown["worker.threads"] == (7, f"{file}:2")
    assert shown["worker.concurrency"] == (9, "PGROUSE_WORKER__CONCURRENCY")
    assert shown["worker.poll_interval"][1] == "settings.PGROUSE['worker']['poll_interval']"
    handler, origin = shown['topics."work.tasks.add".handler']
    assert handler == "pgrouse.contrib.django.handlers:task.work.tasks.add"
    assert origin.rpartition(":")[0].endswith("work/tasks.py")
    assert shown['topics."work.tasks.add".concurrency'] == (3, f"{file}:5")
    assert shown["database.dsn"][1] == 'settings.DATABASES["default"]'


def test_a_wrong_setting_is_named(manage):
    ended = manage("pgrouse", "config", "check", PGROUSE={"worker": {"thread": 1}})

    assert ended.returncode == 78
    assert "settings.PGROUSE['worker']['thread']" in ended.stderr
    assert "did you mean 'threads'?" in ended.stderr


def test_a_queue_that_there_is_not_is_refused(manage):
    ended = manage("pgrouse", "--queue", "default", "--queue", "reprots", "run")

    assert ended.returncode == 78
    assert "--queue reprots" in ended.stderr


def test_a_file_may_be_named_by_the_settings(manage, tmp_path):
    file = tmp_path / "queue.toml"
    file.write_text("[worker]\nthreads = 7\n")

    shown = described(manage("pgrouse", "config", "show", "--json", PGROUSE={"config": str(file)}))

    assert shown["worker.threads"] == (7, f"{file}:2")


def test_a_project_without_a_task_is_told_how_to_add_one(manage):
    ended = manage("pgrouse", "run", TASKS={}, PGROUSE={})

    assert ended.returncode == 78
    assert ended.stderr.startswith("pgrouse: there is no handler: write a task into the module `tasks` of an installed")


def test_migrate_of_another_database_says_which_one_is_needed(manage):
    sqlite = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}

    ended = manage("migrate", DATABASES=sqlite)

    assert ended.returncode == 1
    assert ended.stderr.startswith('CommandError: DATABASES["default"] leads to sqlite: name one of PostgreSQL')


@pytest.mark.django_db
def test_the_command_may_be_called_by_code(capfd):
    call_command("pgrouse", "topic", "list")

    with pytest.raises(SystemExit) as ended:
        call_command("pgrouse", "message", "show", "7")
    assert ended.value.code == 1


def test_the_connection_string_is_that_of_django(settings):
    wanted = connections["default"]
    before = wanted.settings_dict["OPTIONS"]
    wanted.settings_dict["OPTIONS"] = {
        "assume_role": "messages_worker",
        "pool": {"max_size": 3},
        "isolation_level": 2,
        "server_side_binding": True,
        "options": "-c lock_timeout=5s",
        "sslmode": "prefer",
    }

    parts = conninfo_to_dict(project.dsn())

    wanted.settings_dict["OPTIONS"] = before
    assert parts["dbname"] == wanted.settings_dict["NAME"]
    assert parts["options"] == "-c lock_timeout=5s -c role=messages_worker"
    assert parts["sslmode"] == "prefer"
    assert not {"pool", "isolation_level", "assume_role", "server_side_binding", "context"} & parts.keys()


def installed():
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regnamespace('messages') IS NOT NULL")
        return cursor.fetchone()[0]


@pytest.fixture
def without_schema(manage):
    with connection.cursor() as cursor:
        cursor.execute("DROP SCHEMA messages CASCADE")
    yield
    call_command("migrate", verbosity=0)


def test_migrate_installs_the_schema_before_the_migrations(without_schema, capsys):
    call_command("migrate")

    assert "The schema messages, of pgrouse, was brought up to date." in capsys.readouterr().out
    assert installed()
    call_command("migrate")
    assert "schema messages" not in capsys.readouterr().out


def test_migrate_leaves_it_where_that_is_wanted(without_schema, settings):
    settings.PGROUSE = {**settings.PGROUSE, "migrate": False}
    call_command("migrate", verbosity=0)
    assert not installed()

    settings.PGROUSE = {**settings.PGROUSE, "migrate": True, "using": "other"}
    install_schema(using="default")
    assert not installed()


@pytest.fixture
def weak_role(manage):
    with connection.cursor() as cursor:
        cursor.execute("CREATE ROLE weak_of_django LOGIN")
    yield "weak_of_django"
    with connection.cursor() as cursor:
        cursor.execute("DROP OWNED BY weak_of_django; DROP ROLE weak_of_django")


def test_a_role_that_may_not_install_it_is_told_what_to_do(weak_role, settings):
    wanted = connections["default"]
    wanted.settings_dict["OPTIONS"] = {"assume_role": weak_role}
    try:
        with pytest.raises(CommandError, match=r"PGROUSE = \{\"migrate\": False\}"):
            install_schema(using="default")
    finally:
        wanted.settings_dict["OPTIONS"] = {}
