"""handlers.on_failure and handlers.on_death.

They get failures of every kind, and they cannot harm the work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.daemon.process import HANDLERS, Daemon, Fleet, Journal
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue

Start = Callable[..., Daemon]


def hooks(**names: str) -> dict[str, Any]:
    named = {key: [f"hooks:{name}"] for key, name in names.items()}
    return {"handlers": {"import_path": [str(HANDLERS)], **named}}


BOTH = hooks(on_failure="on_failure", on_death="on_death")
KINDS: dict[str, tuple[Any, str, str, str]] = {
    "loop": ("hooks:fail", "retry", "KeyError('x')", "KeyError: 'x'"),
    "thread": ("hooks:fail_in_thread", "retry", "KeyError('x')", "KeyError: 'x'"),
    "process": ({"handler": "hooks:fail_in_process", "isolation": "process"}, "retry", "None", "KeyError: 'x'"),
    "death_of_a_process": ({"handler": "hooks:die", "isolation": "process"}, "retry", "None",
        "the handler's process died with exit code 7"),
    "reject": ("hooks:reject", "reject", "None", "not today"),
    "fail": ("hooks:fail_for_good", "fail", "None", "never"),
    "invalid_payload": ("hooks:typed", "reject", "None", "payload: (whole): Input should be a valid integer"),
}  # fmt: skip


@pytest.mark.long
def test_both_get_the_last_failure(start: Start, queue: Queue, journal: Journal) -> None:
    start({kind: handler for kind, (handler, *_) in KINDS.items()}, sections=BOTH)

    published = {kind: queue.publish(kind, payload=Jsonb("x")) for kind in KINDS}

    for kind, (_, outcome, exception, error) in KINDS.items():
        for what in ("failure", "death"):
            entry = journal.entry(what, published[kind])
            got = (kind, entry["outcome"], entry["exception"], entry["is_last"], entry["attempt"])
            assert got == (kind, outcome, exception, True, 1)
            assert error in entry["error"]


def test_a_time_out_is_a_failure(start: Start, queue: Queue, journal: Journal) -> None:
    queue.policy("job", timeout="1 s")
    start({"job": "hooks:forever"}, sections=BOTH)

    published = queue.publish("job")

    assert journal.entry("death", published)["outcome"] == "expire"


def test_only_the_last_attempt_is_a_death(start: Start, queue: Queue, journal: Journal) -> None:
    queue.policy("job", max_attempts=3, backoff={"kind": "none"})
    start({"job": "hooks:fail"}, sections=BOTH)

    published = queue.publish("job", payload=Jsonb("x"))

    assert journal.entry("death", published)["attempt"] == 3
    failures = journal.entries("failure", published)
    assert [(e["attempt"], e["is_last"]) for e in failures] == [(1, False), (2, False), (3, True)]
    assert len(journal.entries("death")) == 1


def test_what_a_hook_logs_names_the_message(start: Start, queue: Queue) -> None:
    daemon = start({"job": "hooks:fail"}, sections=BOTH)

    published = queue.publish("job")

    assert daemon.event("hook", message_id=published)["attempt"] == 1


def test_a_hook_that_fails_is_logged_and_the_others_are_called(start: Start, queue: Queue, journal: Journal) -> None:
    daemon = start({"job": "hooks:fail"}, sections=hooks(on_failure="broken", on_death="on_death"))

    published = queue.publish("job")

    failed = daemon.event("hook.failed", message_id=published)
    assert (failed["hook"], "ConnectionError: no pager" in failed["exception"]) == ("hooks:broken", True)
    assert journal.entry("death", published)
    assert eventually(lambda: queue.archived(published)).result == "failed"


@pytest.mark.long
def test_the_daemon_waits_for_hooks_when_it_stops(start: Start, queue: Queue, journal: Journal) -> None:
    daemon = start({"job": "hooks:fail"}, sections=hooks(on_failure="slow"))
    published = [queue.publish("job") for _ in range(3)]
    for each in published:
        daemon.event("attempt.failed", message_id=each)

    assert daemon.stop() == 0

    assert [e["id"] for e in journal.entries("slow")] == published


def test_what_cannot_be_a_hook_is_refused_at_start(fleet: Fleet, database: Database) -> None:
    daemon = fleet.launch({"job": "hooks:fail"}, dsn=database.dsn, sections=hooks(on_death="needs_more"))

    assert daemon.exit_code() == 78
    assert "handlers.on_death: hooks:needs_more is called as needs_more(failure): missing a required" in (
        daemon.log.read_text()
    )
