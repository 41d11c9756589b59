"""The schedules of a configuration: what is applied, what is kept, and what is removed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from pgrouse.client.apply.schedule_change import apply_schedules, schedule_differences
from pgrouse.client.client import Client
from pgrouse.config import config
from pgrouse.errors import ConfigError
from pgrouse.handlers.declaration.discovery import with_declared
from tests.sql.queue import Queue

NIGHTLY = '[schedules.nightly]\ncron = "0 2 * * *"\ntopic = "report"\n'
JOBS = (
    'from pgrouse import topic\n\n@topic("report")\ndef report(payload): '
    '...\n\nreport.every("0 7 * * *", {"pages": 3})\n'
)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    # Another test may have left a folder there, whose modules a package named shop without __init__.py would have too.
    monkeypatch.setattr(sys, "path", [each for each in sys.path if not Path(each, "shop").exists()])
    known = set(sys.modules)
    yield
    for name in set(sys.modules) - known:
        del sys.modules[name]


def read(text: str, file: str = "pgrouse.toml") -> config.Config:
    Path(file).parent.mkdir(exist_ok=True)
    Path(file).write_text(text)
    return with_declared(config.load(Path(file), environ={}))


def read_code(**modules: str) -> config.Config:
    """Return the configuration of modules in a package of this test, by their texts."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
        del sys.modules[name]
    Path("shop").mkdir(exist_ok=True)
    for each in Path("shop").iterdir():
        if each.suffix == ".py":
            each.unlink()
    for name, text in modules.items():
        Path("shop", f"{name}.py").write_text(text)
    # Python notes what is in a folder, and a change within the same tick of the clock is not seen.
    importlib.invalidate_caches()
    names = ", ".join(f'"shop.{name}"' for name in modules)
    return read(f"[handlers]\nmodules = [{names}]\nimport_path = ['.']")


def apply(queue: Queue, settings: config.Config) -> list[str]:
    return [str(each) for each in apply_schedules(queue.conn, settings)]


def names(queue: Queue) -> list[str]:
    return [row.name for row in queue.rows("SELECT name FROM messages.schedule ORDER BY name")]


def test_a_schedule_is_added_changed_and_removed_as_the_file_says(queue: Queue) -> None:
    added = apply(queue, read(NIGHTLY))
    again = apply(queue, read(NIGHTLY))
    changed = apply(queue, read(NIGHTLY + 'jitter = "5m"\nwhile_paused = "skip"\npayload = { pages = 3 }'))
    row = queue.row("SELECT jitter::text, payload, while_paused FROM messages.schedule")
    removed = apply(queue, read(""))

    assert added == ["+ schedule nightly: 0 2 * * * (UTC), topic report"]
    assert again == []
    assert changed == ['schedule nightly: payload {} -> {"pages": 3}, jitter 0s -> 5m, while_paused publish -> skip']
    assert row == ("00:05:00", {"pages": 3}, "skip")
    assert removed == [f"- schedule nightly, which was declared by file {Path.cwd()}/pgrouse.toml"]
    assert names(queue) == []


def test_what_messages_have_instead_of_their_topic_is_applied_once(queue: Queue) -> None:
    own = 'max_attempts = 3\ntimeout = "30s"\nbackoff = "linear"\nretention = "90d"'
    added = apply(queue, read(NIGHTLY + own))
    again = apply(queue, read(NIGHTLY + own))
    changed = apply(queue, read(NIGHTLY + 'timeout = "1m"\nbackoff = { kind = "constant", base = "10s" }'))

    assert (len(added), again) == (1, [])
    assert len(changed) == 1
    assert "max_attempts 3 -> none, timeout 30s -> 1m" in changed[0]
    assert queue.scheduled("nightly").backoff == {"kind": "constant", "base": "10s"}
    with pytest.raises(ConfigError, match=r"schedules\.nightly\.backoff.*kind is missing"):
        read(NIGHTLY + 'backoff = { base = "10s" }')


def test_a_pause_and_the_runs_of_a_schedule_survive_a_change(queue: Queue) -> None:
    apply(queue, read(NIGHTLY))
    queue.call("pause_schedule", "nightly", "not now")

    apply(queue, read(NIGHTLY + "priority = 1"))

    assert queue.value("SELECT paused_reason FROM messages.schedule WHERE priority = 1") == "not now"


def test_what_was_made_by_hand_is_neither_changed_nor_removed(queue: Queue) -> None:
    with Client(queue.conn) as client:
        client.add_schedule("nightly", "0 5 * * *", "report")
        client.add_schedule("other", "0 5 * * *", "report")

    (kept,) = apply(queue, read(NIGHTLY))

    assert kept == (
        "schedule nightly: stays as it was made by hand, without cron 0 5 * * * -> 0 2 * * *: "
        "`pgrouse schedule remove nightly`, or declare another name"
    )
    assert apply(queue, read("")) == []
    assert names(queue) == ["nightly", "other"]


def test_a_declared_schedule_that_a_command_replaces_belongs_to_the_command(queue: Queue) -> None:
    apply(queue, read(NIGHTLY))

    with Client(queue.conn) as client:
        client.add_schedule("nightly", "0 5 * * *", "report", replace=True)

    assert apply(queue, read("")) == []
    assert names(queue) == ["nightly"]


def test_another_file_removes_nothing_of_this_one(queue: Queue) -> None:
    apply(queue, read(NIGHTLY, "a/pgrouse.toml"))

    assert apply(queue, read('[schedules.other]\ncron = "@daily"\ntopic = "t"', "b/pgrouse.toml")) == [
        "+ schedule other: @daily (UTC), topic t"
    ]
    assert names(queue) == ["nightly", "other"]


def test_one_application_may_have_another_file_at_each_release(queue: Queue) -> None:
    shop, billing = '[database]\napplication = "shop"\n', '[database]\napplication = "billing"\n'
    apply(queue, read(shop + NIGHTLY, "one/pgrouse.toml"))

    assert apply(queue, read(billing, "one/pgrouse.toml")) == []
    assert apply(queue, read(shop, "two/pgrouse.toml")) == [
        "- schedule nightly, which was declared by application shop"
    ]


def test_a_schedule_that_is_gone_from_the_code_is_removed(queue: Queue) -> None:
    first = apply(queue, read_code(jobs=JOBS))
    second = apply(queue, read_code(jobs=JOBS.partition("report.every")[0]))

    assert first == ["+ schedule report: 0 7 * * * (UTC), topic report"]
    assert second == ["- schedule report, which was declared by module shop.jobs"]


def test_a_schedule_whose_module_is_gone_is_removed(queue: Queue) -> None:
    apply(queue, read_code(jobs=JOBS))

    assert apply(queue, read_code(other=JOBS.partition("report.every")[0])) == [
        "- schedule report, which was declared by module shop.jobs"
    ]


def test_no_module_is_imported_because_a_schedule_in_the_database_names_it(queue: Queue) -> None:
    settings = read_code(jobs=JOBS)
    Path("shop/script.py").write_text("raise SystemExit('it runs')")
    apply(queue, settings)
    queue.conn.execute("UPDATE messages.schedule SET declared_by = 'module shop.script.part'")

    assert apply(queue, read_code(jobs=JOBS.partition("report.every")[0])) == [
        "- schedule report, which was declared by module shop.script.part"
    ]


def test_a_schedule_of_a_module_that_another_deployment_runs_stays(queue: Queue) -> None:
    apply(queue, read_code(jobs=JOBS))
    settings = read_code(jobs=JOBS, other=JOBS.partition("report.every")[0].replace("report", "mail"))
    settings = read('[handlers]\nmodules = ["shop.other"]')

    assert apply(queue, settings) == []
    assert names(queue) == ["report"]


def test_a_configuration_whose_modules_were_not_read_is_refused(queue: Queue) -> None:
    Path("pgrouse.toml").write_text('[handlers]\nmodules = ["shop.jobs"]')

    with pytest.raises(RuntimeError, match="were not read"):
        schedule_differences(queue.conn, config.load(environ={}))


def test_a_schedule_that_the_server_refuses_changes_nothing(queue: Queue) -> None:
    text = NIGHTLY + '[schedules.wrong]\ncron = "0 25 * * *"\ntopic = "report"'

    with pytest.raises(psycopg.errors.InvalidParameterValue, match="cron of schedule wrong"):
        apply(queue, read(text))

    assert names(queue) == []
