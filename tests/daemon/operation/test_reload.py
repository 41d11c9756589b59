"""SIGHUP: the daemon restarts with the current configuration, in the same process; an invalid one is refused."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.process import HANDLERS, Daemon, Journal
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue

Start = Callable[..., Daemon]


def settings(database: Database, **topics: str) -> dict[str, Any]:
    return {"database": {"dsn": database.dsn}, "topics": topics}


@pytest.mark.long
def test_the_new_configuration_applies_in_the_same_process_after_running_handlers_end(
    start: Start, database: Database, queue: Queue, journal: Journal
) -> None:
    daemon = start({"old": "holding:hold"})
    before = queue.publish("old")
    after = queue.publish("new")
    journal.entry("start", before)
    daemon.configure(settings(database, new="work:echo"))

    daemon.send(signal.SIGHUP)
    daemon.event("daemon.stopping", signal="SIGHUP")
    daemon.open_gate()

    assert journal.entry("start", after)["pid"] == daemon.pid
    assert len(journal.entries("end", before)) == 1
    assert queue.archived(before).result == "success"
    assert daemon.alive


@pytest.mark.parametrize(
    ("topics", "reason"),
    [
        pytest.param({"job": "not a handler"}, "module:function", marks=pytest.mark.long),
        pytest.param({"job": "nowhere:echo"}, "nowhere", marks=pytest.mark.long),
        ({"job": "work:ecko"}, "work has no function ecko"),
    ],
)
def test_an_invalid_configuration_is_refused_and_the_old_one_remains(
    start: Start, database: Database, queue: Queue, journal: Journal, topics: dict[str, str], reason: str
) -> None:
    daemon = start({"job": "work:echo"})
    daemon.configure(settings(database, **topics))

    daemon.send(signal.SIGHUP)

    assert reason in daemon.event("daemon.reload_failed")["reason"]
    assert journal.entry("start", queue.publish("job"))["pid"] == daemon.pid


@pytest.mark.long
def test_a_changed_handler_module_is_imported_again(
    start: Start, queue: Queue, journal: Journal, tmp_path: Path
) -> None:
    module = "from work import write\n\n\nasync def run(payload, ctx):\n    write({word!r}, ctx)\n"
    (tmp_path / "edited.py").write_text(module.format(word="first"))
    daemon = start({"job": "edited:run"}, sections={"handlers": {"import_path": [str(HANDLERS), str(tmp_path)]}})
    journal.entry("first", queue.publish("job"))

    (tmp_path / "edited.py").write_text(module.format(word="the second one"))
    daemon.send(signal.SIGHUP)
    eventually(lambda: len(daemon.events("daemon.started")) == 2)

    journal.entry("the second one", queue.publish("job"))
