"""`pgrouse doctor`: output and exit codes. The findings are tested by tests/doctor."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgrouse.doctor import CODES
from tests.cli.shell import Shell
from tests.cli.terminal import COLOR, on_terminal, plain
from tests.daemon.process import PGROUSE
from tests.server.postgres import Database
from tests.sql.queue import Queue


def test_a_healthy_database_prints_one_line_and_exits_with_0(pgrouse: Shell) -> None:
    ended = pgrouse("doctor", "--only", "listener", "--only", "triggers")

    assert ended.code == 0
    assert ended.out == (
        "ok    listener  a notification arrived at database.dsn\n"
        "ok    triggers  all are switched on\n"
        "no problems: 2 checks made\n"
    )


def test_failures_are_printed_last_with_their_fix_and_the_exit_code_is_1(pgrouse: Shell, queue: Queue) -> None:
    queue.conn.execute("ALTER TABLE messages.message DISABLE TRIGGER new_message")

    ended = pgrouse("doctor", "--only", "triggers", "--only", "listener")

    assert ended.code == 1
    assert ended.out == (
        "ok    listener  a notification arrived at database.dsn\n"
        "fail  triggers  the trigger new_message of messages.message is switched off\n"
        "                fix: ALTER TABLE messages.message ENABLE TRIGGER new_message;\n"
        "2 checks made: 1 fail\n"
    )


def test_a_warning_is_a_failure_only_with_strict(pgrouse: Shell, queue: Queue) -> None:
    queue.conn.execute("ALTER TABLE messages.message RESET (fillfactor)")

    lenient = pgrouse("doctor", "--only", "table_settings")
    strict = pgrouse("doctor", "--only", "table_settings", "--strict")

    assert (lenient.code, strict.code) == (0, 1)
    assert lenient.out == strict.out
    assert lenient.out.endswith("1 check made: 1 warn\n")


def test_many_findings_of_one_code_are_counted_unless_listed_on_demand(pgrouse: Shell, queue: Queue) -> None:
    # While no worker is alive at all, that is the only failure.
    queue.later("31 s")
    queue.call("register_worker", "w", "h", 1, "1.0", ["t"], 1)
    for n in range(8):
        queue.publish(f"orphan.{n}", wait="-10 minutes")

    ended = pgrouse("doctor")
    asked = pgrouse("doctor", "--only", "unhandled_topics")
    as_json = pgrouse("doctor", "--json")

    assert ended.out.count("fail  unhandled_topics") == 5
    assert "and 3 more: `pgrouse doctor --only unhandled_topics`" in ended.out
    assert asked.out.count("fail  unhandled_topics") == 8
    assert len([each for each in as_json.objects if each["code"] == "unhandled_topics"]) == 8


def test_quiet_omits_passed_checks(pgrouse: Shell) -> None:
    ended = pgrouse("doctor", "--quiet", "--only", "triggers", "--only", "ticks")

    assert ended.code == 1
    assert "triggers" not in ended.out
    assert ended.out.startswith("fail  ticks  the maintenance has never run")


def test_json_is_an_object_for_each_finding(pgrouse: Shell) -> None:
    ended = pgrouse("doctor", "--json", "--only", "ticks", "--only", "triggers")

    assert ended.code == 1
    assert [(each["code"], each["level"]) for each in ended.objects] == [("triggers", "ok"), ("ticks", "fail")]
    assert set(ended.objects[0]) == {"code", "level", "what", "fix", "detail"}


def test_an_unreachable_database_is_reported_with_the_checks_that_need_none(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGROUSE_DSN", f"host={tmp_path} user=u dbname=d")

    ended = shell("doctor")

    assert ended.code == 69
    assert "ok    configuration  no file, defaults only" in ended.out
    assert "fail  connection     no connection to PostgreSQL" in ended.out
    assert "warn  unexamined     pooler, listener, clock" in ended.out


def test_an_unknown_code_is_refused_with_the_nearest(pgrouse: Shell) -> None:
    ended = pgrouse("doctor", "--only", "listner")

    assert (ended.code, ended.out) == (2, "")
    assert "there is no code 'listner'; did you mean 'listener'?" in ended.err


def test_checks_that_need_more_rights_are_reported(pgrouse: Shell, acting_as: object) -> None:
    acting_as("messages_publisher")  # type: ignore[operator]

    ended = pgrouse("doctor", "--quiet", "--only", "ticks", "--only", "listener")

    assert ended.code == 0
    assert "ticks, tick_tasks, expired_locks, schedules: this user has no right to see it" in ended.out
    assert "fix: GRANT messages_operator, or messages_analyst, to the user of database.dsn" in ended.out


@pytest.mark.long
def test_every_line_fits_the_terminal_and_levels_have_colours(database: Database, folder: Path) -> None:
    written = on_terminal([str(PGROUSE), "doctor"], {"PGROUSE_DSN": database.dsn}, width=80)

    lines = plain(written)
    assert [line for line in lines if len(line) > 80] == []
    assert {code for code in CODES if code != "unexamined"} <= {
        line.split()[1] for line in lines if line[:4].strip() in ("ok", "warn", "fail")
    }
    assert COLOR.search(written)


def test_control_characters_of_stored_text_do_not_reach_the_terminal(pgrouse: Shell, queue: Queue) -> None:
    queue.call("register_worker", "w", "h", 1, "1.0", ["t"], 1)
    # A name from before such characters were refused.
    queue.conn.execute("UPDATE messages.worker SET name = %s, seen_at = seen_at - interval '5 minutes'", ["w\x1b[31m"])
    queue.call("register_worker", "lives", "h", 1, "1.0", ["t"], 1)

    ended = pgrouse("doctor", "--only", "workers_gone")

    assert "\x1b" not in ended.out
    assert "w\\x1b[31m" in ended.out
