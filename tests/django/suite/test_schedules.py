"""Schedules of a project: `manage.py migrate` puts them in force, in the time zone of the settings."""

from __future__ import annotations

import json

import pytest
from conftest import until
from django.conf import settings
from django.db import connection
from work import tasks

EVERY_SECOND = {"topic": "work.tasks.add", "cron": "1 second", "payload": {"args": [40, 2]}}
AT_SEVEN = {"topic": "work.tasks.report", "cron": "0 7 * * *"}


def project(**schedules):
    """Return the settings of the project with schedules."""
    return {**settings.PGROUSE, "schedules": schedules}


def rows(statement, *values):
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return cursor.fetchall()


def in_force():
    return dict(rows("SELECT name, time_zone FROM messages.schedule"))


def test_a_schedule_of_the_settings_fires_after_migrate(manage):
    manage.start("run")

    migrated = manage("migrate", PGROUSE=project(often=EVERY_SECOND))

    assert migrated.returncode == 0, migrated.stderr
    assert "+ schedule often: 1 second (UTC), topic work.tasks.add\n" in migrated.stdout
    ended = "SELECT output FROM messages.message_archive WHERE topic = 'work.tasks.add' AND result = 'success'"
    assert until(lambda: rows(ended))[0] in [(42,), ("42",)]


def test_migrate_removes_what_the_settings_have_no_more_and_says_so(manage):
    manage("migrate", PGROUSE=project(often=EVERY_SECOND, early=AT_SEVEN))

    changed = manage("migrate", PGROUSE=project(early={**AT_SEVEN, "cron": "0 6 * * *"}))
    again = manage("migrate", PGROUSE=project(early={**AT_SEVEN, "cron": "0 6 * * *"}))

    assert "- schedule often, which was declared by settings project.settings\n" in changed.stdout
    assert "schedule early: cron 0 7 * * * -> 0 6 * * *\n" in changed.stdout
    assert "schedule" not in again.stdout
    assert rows("SELECT name, cron FROM messages.schedule") == [("early", "0 6 * * *")]


def test_a_project_leaves_the_schedules_of_others_alone(manage):
    rows(
        "INSERT INTO messages.schedule (name, cron, topic, declared_by) VALUES "
        "('theirs', '@daily', 'a', 'settings other.settings'), ('by-hand', '@daily', 'a', NULL) RETURNING name"
    )

    manage("migrate", PGROUSE=project(early=AT_SEVEN))
    manage("migrate", PGROUSE=project())

    assert set(in_force()) == {"theirs", "by-hand"}


def test_the_time_zone_is_that_of_the_project_unless_a_schedule_names_one(manage, tmp_path):
    file = tmp_path / "pgrouse.toml"
    file.write_text('[schedules.filed]\ncron = "@daily"\ntopic = "work.tasks.add"\n')
    wanted = {
        **project(early=AT_SEVEN, utc={**AT_SEVEN, "time_zone": "UTC"}),
        "config": str(file),
        "handlers": {"modules": ["work.declared"]},
    }

    migrated = manage("migrate", PGROUSE=wanted, TIME_ZONE="Europe/Berlin")
    shown = manage("pgrouse", "config", "show", "--json", PGROUSE=wanted, TIME_ZONE="Europe/Berlin")

    assert migrated.returncode == 0, migrated.stderr
    berlin = dict.fromkeys(["early", "filed", "declared"], "Europe/Berlin")
    assert in_force() == {**berlin, "utc": "UTC", "declared-in-tokyo": "Asia/Tokyo"}
    origins = {each["key"]: each["origin"] for each in map(json.loads, shown.stdout.splitlines())}
    assert origins["schedules.early.time_zone"] == "settings.TIME_ZONE"
    assert origins["schedules.utc.time_zone"] == "settings.PGROUSE['schedules']['utc']['time_zone']"
    assert origins["schedules.declared-in-tokyo.time_zone"].rpartition(":")[0].endswith("work/declared.py")


def test_a_time_zone_that_the_server_does_not_take_is_named_by_its_setting(manage):
    # A folder of zones: all that Django looks for is that it is there.
    ended = manage("migrate", PGROUSE=project(early=AT_SEVEN), TIME_ZONE="Europe")

    assert ended.returncode == 1
    assert ended.stderr.startswith("CommandError: settings.TIME_ZONE: schedules.early.time_zone")
    assert "Traceback" not in ended.stderr
    assert in_force() == {}


@pytest.mark.parametrize("policy", ["never", "migrate"])
def test_what_is_wrong_in_the_settings_is_said_before_anything_is_changed(manage, policy):
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM messages.migration WHERE name = 'publish'")
    wrong = {**project(early=AT_SEVEN), "handlers": {"modules": ["work.no_such_module"]}}

    ended = manage("migrate", PGROUSE={**wrong, "database": {"apply_policies": policy}})

    is_applied = bool(rows("SELECT FROM messages.migration WHERE name = 'publish'"))
    if policy == "never":  # where the code of handlers is not installed
        assert (ended.returncode, is_applied, in_force()) == (0, True, {})
    else:
        assert (ended.returncode, is_applied) == (1, False)
        assert "CommandError: settings.PGROUSE['handlers']['modules']: handlers.modules" in ended.stderr
        manage("migrate", PGROUSE=project())


def test_a_daemon_says_once_that_debug_is_on(manage):
    debugging, quiet = manage.start("run", DEBUG=True), manage.start("run", processes=2)

    assert debugging.log.read_text().count('"django.debug_on"') == 1
    assert "django.debug_on" not in quiet.log.read_text()


def test_debug_does_not_keep_the_statements_of_earlier_tasks(manage):
    one = {**settings.PGROUSE, "worker": {**settings.PGROUSE["worker"], "threads": 1}}
    manage.start("run", PGROUSE=one, DEBUG=True)

    for _ in range(3):
        result = tasks.count_statements.enqueue()
        until(lambda result=result: (result.refresh(), result.is_finished)[1])
        assert result.return_value == 1
