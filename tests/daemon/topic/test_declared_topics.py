"""Topics that are declared in code.

Daemons find them, in children and in several processes too, and again after a reload.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.daemon.process import HANDLERS, Daemon, Fleet, Journal, until_armed
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue

Start = Callable[..., Daemon]
DECLARED: dict[str, Any] = {"handlers": {"import_path": [str(HANDLERS)], "modules": ["declared"]}}


def test_a_daemon_works_the_topics_of_its_modules_by_their_policies(
    start: Start, database: Database, queue: Queue
) -> None:
    start({}, database={"apply_policies": "run"}, sections=DECLARED)

    message = queue.publish("orders.created", payload={"id": 7})

    eventually(lambda: queue.archived(message))
    assert (queue.archived(message).output, queue.archived(message).attempts) == (7, 3)
    assert queue.value("SELECT max_attempts FROM messages.topic WHERE topic = 'orders.created'") == 4


@pytest.mark.long
def test_they_run_in_children_and_in_batches(start: Start, queue: Queue, journal: Journal) -> None:
    start({}, sections=DECLARED)

    child, listed = queue.publish("orders.child", payload={"id": 1}), queue.publish("orders.list", payload={"id": 2})

    eventually(lambda: queue.archived(child) and queue.archived(listed))
    assert queue.archived(child).output == 1
    assert journal.entry("child")["pid"] != journal.entry("batch")["pid"]


def test_the_file_may_name_another_handler(start: Start, queue: Queue, journal: Journal) -> None:
    start({"orders.created": "work:echo"}, sections=DECLARED)

    journal.entry("start", queue.publish("orders.created", payload={"id": 1}))

    assert not journal.entries("created")


@pytest.mark.long
def test_a_flag_names_the_modules_of_all_processes_and_lasts_over_a_reload(
    fleet: Fleet, database: Database, queue: Queue, journal: Journal
) -> None:
    daemon = fleet.launch({}, dsn=database.dsn, processes=2, arguments=("-m", "declared"))
    eventually(lambda: len(queue.rows("SELECT FROM messages.worker")) == 2, within_s=60)
    daemon.stop()

    daemon = fleet.launch({}, dsn=database.dsn, arguments=("-m", "declared"))
    until_armed(queue.conn, daemon)
    daemon.send(signal.SIGHUP)
    eventually(lambda: len(daemon.events("daemon.started")) == 2, within_s=60)
    message = queue.publish("orders.list", payload={"id": 1})

    eventually(lambda: queue.archived(message))
    assert not daemon.events("daemon.reload_failed")


def test_a_module_that_cannot_be_imported_ends_the_daemon_with_its_line(fleet: Fleet, database: Database) -> None:
    daemon = fleet.launch({}, dsn=database.dsn, sections={"handlers": {"import_path": ["."], "modules": ["broken"]}})
    assert daemon.exit_code() == 78
    assert "module broken cannot be imported" in daemon.log.read_text()


def test_a_daemon_applies_the_schedules_of_its_code_and_fires_them(
    start: Start, queue: Queue, journal: Journal
) -> None:
    daemon = start({}, database={"apply_policies": "run"}, sections=DECLARED)

    assert daemon.event("schedule.changed")["change"] == "+ schedule orders.child: 1 seconds (UTC), topic orders.child"
    journal.entry("child")


def test_a_daemon_that_may_not_apply_schedules_names_those_that_are_not_in_force(start: Start, queue: Queue) -> None:
    daemon = start({}, sections=DECLARED)

    assert daemon.event("schedule.not_applied")["schedule"] == "orders.child"
    assert queue.rows("SELECT FROM messages.schedule") == []
