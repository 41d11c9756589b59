"""Policies in the file of a daemon.

They are written if apply is set, and reported if it is not; a change applies without a restart.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.daemon.process import Daemon, Fleet, Journal, until_armed
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue

Start = Callable[..., Daemon]

TOPICS = {
    "*": {"lock_duration": "1m"},
    "job": {"handler": "work:echo", "max_attempts": 5, "subscriptions": ["user.changed"]},
    "beside": {"max_attempts": 7},
}


def test_daemons_that_start_at_once_write_the_policies_of_their_file_once(
    fleet: Fleet, database: Database, queue: Queue
) -> None:
    daemons = [fleet.launch(TOPICS, dsn=database.dsn, database={"apply_policies": "run"}) for _ in range(3)]
    for daemon in daemons:
        until_armed(queue.conn, daemon)

    changes = [event["change"] for daemon in daemons for event in daemon.events("policy.changed")]

    assert sorted(changes) == [
        "*: lock_duration 30s -> 1m",
        "beside: max_attempts inherit -> 7",
        "job: + subscription to user.changed",
        "job: max_attempts inherit -> 5",
    ]
    assert queue.value("SELECT max_attempts FROM messages.topic WHERE topic = 'beside'") == 7


def test_a_file_without_apply_changes_nothing_and_the_difference_is_reported(start: Start, queue: Queue) -> None:
    daemon = start(TOPICS)

    changes = [event["change"] for event in daemon.events("policy.not_applied")]

    assert "job: max_attempts inherit -> 5" in changes
    assert queue.value("SELECT count(*) FROM messages.topic") == 1


def test_a_daemon_that_may_not_write_policies_names_the_right_it_needs(
    fleet: Fleet, database: Database, queue: Queue
) -> None:
    dsn = f"{database.dsn} options='-c role=messages_worker'"

    daemon = fleet.launch(TOPICS, dsn=dsn, database={"apply_policies": "run"})

    assert daemon.exit_code() == 1
    assert "this needs messages_operator" in daemon.log.read_text()
    assert queue.value("SELECT count(*) FROM messages.topic") == 1


def test_policies_that_already_match_need_no_right_to_write(fleet: Fleet, database: Database, queue: Queue) -> None:
    queue.policy("job", max_attempts=5)
    dsn = f"{database.dsn} options='-c role=messages_worker'"

    daemon = fleet.launch(
        {"job": {"handler": "work:echo", "max_attempts": 5}}, dsn=dsn, database={"apply_policies": "run"}
    )

    until_armed(queue.conn, daemon)


def test_a_change_at_run_time_applies_to_the_next_attempt(start: Start, queue: Queue, journal: Journal) -> None:
    start({"job": "work:act"})
    first = queue.publish("job", payload={"do": "raise"})
    eventually(lambda: queue.archived(first))

    queue.policy("job", max_attempts=3, backoff={"kind": "none"})
    second = queue.publish("job", payload={"do": "raise"})

    eventually(lambda: queue.archived(second))
    assert (queue.archived(first).attempts, queue.archived(second).attempts) == (1, 3)
    assert len(journal.entries("start", second)) == 3


@pytest.mark.parametrize("apply", ["never", "migrate", "run"])
def test_a_schedule_that_the_server_cannot_use_ends_the_start_with_file_and_line(
    fleet: Fleet, database: Database, queue: Queue, apply: str
) -> None:
    schedule = {"topic": "job", "cron": "0 25 * * *", "time_zone": "Europe/Berlyn"}

    daemon = fleet.launch(
        {"job": "work:echo"},
        dsn=database.dsn,
        database={"apply_policies": apply},
        sections={"schedules.nightly": schedule},
    )

    assert daemon.exit_code() == 78
    said = daemon.log.read_text()
    assert 'schedules.nightly.cron: hour is "25"' in said
    assert 'schedules.nightly.time_zone is "Europe/Berlyn": use an IANA name' in said
    assert "pgrouse.toml:" in said
    assert queue.rows("SELECT FROM messages.schedule") == []
