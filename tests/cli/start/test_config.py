"""`pgrouse config`. Errors in the file are tested by tests/config/test_config.py."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.shell import Shell
from tests.sql.queue import Queue

Write = Callable[[str], None]


@pytest.fixture
def write(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes pgrouse.toml; entries that checks add to the import path are removed again."""
    monkeypatch.setattr(sys, "path", sys.path[:])
    return lambda text: (folder / "pgrouse.toml").write_text(text) and None


# check


def test_a_valid_configuration_passes(shell: Shell, write: Write, folder: Path) -> None:
    (folder / "cli_good_handlers.py").write_text("def work(payload): ...")
    write('[topics.a]\nhandler = "cli_good_handlers:work"')

    assert shell("config", "check").out == f"ok: {folder}/pgrouse.toml, 1 topic, their handlers can be imported\n"
    assert shell("config", "check", "--json").object == {"ok": True, "file": f"{folder}/pgrouse.toml", "topics": ["a"]}


def test_every_problem_is_a_line_and_the_exit_code_is_78(shell: Shell, write: Write) -> None:
    write('[worker]\nconurrency = 1\nthreads = "x"')

    ended = shell("config", "check")

    assert (ended.code, ended.out) == (78, "")
    assert ended.err.splitlines() == [
        "pgrouse: pgrouse.toml:2: unknown key 'conurrency' in [worker]; did you mean 'concurrency'?",
        "pgrouse: pgrouse.toml:3: worker.threads: expected a whole number, found 'x'",
    ]


def test_json_has_file_line_and_key_of_each_problem(
    shell: Shell, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("[worker]\nthreads = 0")
    monkeypatch.setenv("PGROUSE_LOG__LEVEL", "loud")

    ended = shell("config", "check", "--json")

    assert ended.code == 78
    assert [(p["file"], p["line"], p["variable"], p["key"]) for p in ended.objects] == [
        (None, None, "PGROUSE_LOG__LEVEL", "log.level"),
        ("pgrouse.toml", 2, None, "worker.threads"),
    ]


@pytest.mark.parametrize(
    ("module", "handler", "expected"),
    [
        ("", "nowhere_to_be_found:work", "nowhere_to_be_found"),
        ("def other(payload): ...", "cli_bad_handlers:work", "cli_bad_handlers has no function work"),
        ("import no_such_module_at_all", "cli_bad_handlers:work", "No module named 'no_such_module_at_all'"),
        ("def work(", "cli_bad_handlers:work", "SyntaxError"),
        ("raise SystemExit(3)", "cli_bad_handlers:work", "SystemExit: 3"),
        ("work = 7", "cli_bad_handlers:work", "is not a function: its type is int"),
        ("def work(a, b, c): ...", "cli_bad_handlers:work", "needs 3 arguments"),
        ("", "os:system", "module os may not be used"),
        ("", "click:echo", "module click may not be used"),
    ],
)
def test_an_invalid_handler_is_reported_with_file_line_and_key(
    shell: Shell, write: Write, folder: Path, monkeypatch: pytest.MonkeyPatch, module: str, handler: str, expected: str
) -> None:
    monkeypatch.delitem(sys.modules, "cli_bad_handlers", raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (folder / "cli_bad_handlers.py").write_text(module)
    write(f'[topics."a.b"]\nconcurrency = 1\nhandler = "{handler}"')

    ended = shell("config", "check")

    assert (ended.code, ended.out) == (78, "")
    assert ended.err.startswith('pgrouse: pgrouse.toml:3: topics."a.b".handler: ')
    assert expected in ended.err


def test_the_file_can_be_named_before_or_behind_the_command(shell: Shell, folder: Path) -> None:
    (folder / "x.toml").write_text("[worker]\nthreads = 3")

    assert shell("--config", "x.toml", "config", "show").out == shell("config", "show", "-c", "x.toml").out
    assert "x.toml:2" in shell("config", "show", "-c", "x.toml").out


# show


def test_each_value_is_shown_with_its_source(
    shell: Shell, write: Write, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write('[worker]\npoll_interval = 0.5\n[topics."a.b"]\nhandler = "m:f"')
    monkeypatch.setenv("PGROUSE_WORKER__CLAIM_CONNECTIONS", "3")

    rows = {row["key"]: (row["value"], row["origin"]) for row in shell("config", "show", "--json").objects}

    assert rows["worker.poll_interval"] == ("500ms", "pgrouse.toml:2")
    assert rows["worker.claim_connections"] == (3, "PGROUSE_WORKER__CLAIM_CONNECTIONS")
    assert rows["worker.threads"] == (16, "default")
    assert rows['topics."a.b".handler'] == ("m:f", "pgrouse.toml:4")
    assert rows["handlers.import_path"] == ([str(folder)], "default")


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_passwords_are_hidden(
    shell: Shell, write: Write, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    write('[database]\nlisten_dsn = "host=h password=swordfish dbname=d"')
    monkeypatch.setenv("PGROUSE_DSN", "postgresql://u:hunter22@h/d")

    shown = shell("config", "show", *arguments).out

    assert "postgresql://u:****@h/d" in shown
    assert "host=h password=**** dbname=d" in shown
    assert "swordfish" not in shown
    assert "hunter22" not in shown


# schema


BAD_SCHEDULES = """
[schedules.zone]
topic = "a"
cron = "@daily"
time_zone = "+02:00"
[schedules.both]
topic = "a"
cron = "0 25 * * *"
time_zone = "Europe/Berlyn"
[schedules.never]
topic = "a"
cron = "0 0 30 2 *"
[schedules.good]
topic = "a"
cron = "0 2 * * *"
time_zone = "Europe/Berlin"
"""
BAD_SCHEDULES_LINES = [
    'pgrouse.toml:5: schedules.zone.time_zone is "+02:00", which PostgreSQL counts in the other direction: '
    "use the name of a region, like Europe/Berlin, or Etc/GMT-2",
    'pgrouse.toml:8: schedules.both.cron: hour is "25": use',
    'pgrouse.toml:9: schedules.both.time_zone is "Europe/Berlyn": use an IANA name, like UTC or Europe/Berlin',
    'pgrouse.toml:12: schedules.never.cron is "0 0 30 2 *", a day that never comes: use a day that the month has',
]


@pytest.mark.parametrize("command", ["config check", "migrate", "migrate --dry-run", "topic apply"])
def test_schedules_that_the_server_cannot_use_are_reported_with_file_and_line(
    pgrouse: Shell, write: Write, queue: Queue, command: str
) -> None:
    write(BAD_SCHEDULES)

    ended = pgrouse(*command.split())

    lines = ended.err.splitlines()
    assert ended.code == 78
    assert [line[: len("pgrouse: " + start)] for line, start in zip(lines, BAD_SCHEDULES_LINES, strict=True)] == [
        f"pgrouse: {start}" for start in BAD_SCHEDULES_LINES
    ]
    assert queue.rows("SELECT FROM messages.schedule") == []


def test_the_check_tells_in_json_which_key_of_a_schedule_is_wrong(pgrouse: Shell, write: Write) -> None:
    write(BAD_SCHEDULES)

    found = pgrouse("config", "check", "--json").objects

    assert [(each["file"], each["line"], each["key"]) for each in found][:2] == [
        ("pgrouse.toml", 5, "schedules.zone.time_zone"),
        ("pgrouse.toml", 8, "schedules.both.cron"),
    ]


def test_config_show_shows_a_schedule_that_the_server_cannot_use(pgrouse: Shell, write: Write) -> None:
    write(BAD_SCHEDULES)

    ended = pgrouse("config", "show")

    assert ended.code == 0
    assert "Europe/Berlyn" in ended.out


def test_a_valid_but_surprising_setting_is_a_warning(shell: Shell, write: Write, folder: Path) -> None:
    (folder / "cli_rules_handlers.py").write_text("def work(payload): ...")
    write('[topics.a]\nhandler = "cli_rules_handlers:work"\nack_policy = "ack_first"')

    ended = shell("config", "check")

    assert (ended.code, ended.out.partition(":")[0]) == (0, "ok")
    assert ended.err.startswith("warning: pgrouse.toml:3: topics.a.ack_policy: ")


def test_config_show_has_what_is_in_force_where_that_differs(pgrouse: Shell, folder: Path, queue: Queue) -> None:
    queue.policy("job", max_attempts=7)
    (folder / "pgrouse.toml").write_text('[topics.job]\nmax_attempts = 5\ntimeout = "5s"')

    shown = {row["key"]: row for row in pgrouse("config", "show", "--json").objects}

    assert (shown["topics.job.max_attempts"]["value"], shown["topics.job.max_attempts"]["in_force"]) == (5, "7")
    assert shown["topics.job.timeout"]["in_force"] == "inherit"


def test_config_show_has_the_line_of_code_of_each_value(shell: Shell, write: Write, folder: Path) -> None:
    (folder / "cli_jobs.py").write_text(
        'from pgrouse import topic\n\n@topic("a", max_attempts=3)\ndef work(payload): ...\n'
    )
    write('[handlers]\nmodules = ["cli_jobs"]')

    shown = {row["key"]: row["origin"] for row in shell("config", "show", "--json").objects}

    assert shown["topics.a.max_attempts"] == "cli_jobs.py:3"
