"""`pgrouse health`."""

from __future__ import annotations

import re
import socket

import pytest

from tests.cli.shell import Shell
from tests.cli.stage import die, silence, start
from tests.sql.queue import Queue

HERE = socket.gethostname()


def test_a_recently_seen_worker_of_this_host_is_healthy(pgrouse: Shell, queue: Queue) -> None:
    start(queue, "w1", host=HERE)

    ended = pgrouse("health")

    assert (ended.code, ended.err) == (0, "")
    assert [line.split()[:2] for line in ended.out.splitlines()] == [
        ["ok", "database"],
        ["ok", "schema"],
        ["ok", "worker"],
    ]
    report = pgrouse("health", "--json").object
    assert (report["ok"], report["problem"], {check["level"] for check in report["checks"]}) == (True, None, {"ok"})


@pytest.mark.parametrize(
    ("host", "silent_s", "arguments", "expected"),
    [
        ("other", 0, [], f"there is no worker on host {HERE}: start one with `pgrouse run`"),
        (HERE, 31, [], "w1 was last seen AGE ago: see its log"),
        (HERE, 0, ["--worker", "w2"], "there is no worker w2: start one with `pgrouse run`"),
    ],
)
def test_a_missing_or_silent_worker_is_a_problem(
    pgrouse: Shell, queue: Queue, host: str, silent_s: int, arguments: list[str], expected: str
) -> None:
    start(queue, "w1", host=host)
    silence(queue, "w1", silent_s)

    report = pgrouse("health", *arguments, "--json").object
    problem = report["problem"]
    assert (report["ok"], without_age(problem)) == (False, expected)
    assert report["checks"][-1] == {"name": "worker", "level": "fail", "detail": problem}
    ended = pgrouse("health", *arguments)
    assert ended.code == 1
    assert without_age(ended.out.splitlines()[-1]) == f"fail  worker    {expected}"


def without_age(text: str) -> str:
    """Return it without the seconds, which increase while the test runs; they are about thirty."""
    return re.sub(r"\b(3[1-9]|[4-9]\d)s ago", "AGE ago", text)


def test_a_named_worker_is_checked_on_any_host(pgrouse: Shell, queue: Queue) -> None:
    start(queue, "w1", host="other")

    assert pgrouse("health", "--worker", "w1").code == 0


def test_the_database_alone_can_be_checked(pgrouse: Shell) -> None:
    assert pgrouse("health", "--no-worker").code == 0


def test_an_older_schema_is_exit_code_78(pgrouse: Shell, queue: Queue) -> None:
    queue.conn.execute("DELETE FROM messages.migration WHERE name = '0013_alert'")

    ended = pgrouse("health")

    assert ended.code == 78
    assert ended.err.startswith("pgrouse: the schema is older than this version")


def complete(pgrouse: Shell) -> tuple[int, dict[str, tuple[str, str]]]:
    """The exit code, and the problems by name."""
    ended = pgrouse("health", "--complete", "--json")
    return ended.code, {check["name"]: (check["level"], check["detail"]) for check in ended.object["checks"]}


def tick(queue: Queue, caller: str, age: str = "0") -> None:
    queue.rows("SELECT * FROM messages.tick(%s)", [caller])
    queue.conn.execute("UPDATE messages.tick_mark SET ran_at = ran_at - %s::interval WHERE caller = %s", [age, caller])


@pytest.fixture
def hearing(queue: Queue) -> Queue:
    """A healthy queue: a worker of this host listens and ticks."""
    start(queue, "w1", host=HERE)
    queue.call("touch_worker", "w1", {"listener": "listening"})
    tick(queue, "daemon")
    return queue


def test_the_complete_check_of_a_healthy_queue_finds_nothing(pgrouse: Shell, hearing: Queue) -> None:
    code, found = complete(pgrouse)

    assert (code, {level for level, _ in found.values()}) == (0, {"ok"})
    assert list(found) == ["database", "schema", "worker", "listener", "maintenance", "retention"]


@pytest.mark.parametrize("status", [{"listener": "degraded"}, {}])
def test_a_worker_without_notifications_is_a_problem_of_the_complete_check_only(
    pgrouse: Shell, hearing: Queue, status: dict[str, str]
) -> None:
    hearing.call("touch_worker", "w1", status)

    code, found = complete(pgrouse)

    assert (code, found["listener"][0]) == (1, "fail")
    assert "database.listen_dsn" in found["listener"][1]
    assert pgrouse("health").code == 0


def test_missing_maintenance_is_a_problem(pgrouse: Shell, hearing: Queue) -> None:
    tick(hearing, "daemon", "4 minutes")
    code, found = complete(pgrouse)
    assert (code, found["maintenance"]) == (1, ("fail", "ran 4m ago: start a daemon, or `pgrouse cron install`"))

    hearing.conn.execute("DELETE FROM messages.tick_mark")
    assert complete(pgrouse)[1]["maintenance"][1].startswith("never ran")


def test_a_stopped_pg_cron_is_a_warning_while_daemons_tick(pgrouse: Shell, hearing: Queue) -> None:
    tick(hearing, "cron", "1 hour")

    code, found = complete(pgrouse)

    assert code == 0
    assert found["maintenance"][0] == "warn"
    assert found["maintenance"][1].startswith("pg_cron last ran ")


def test_an_export_that_delays_the_retention_is_a_warning(pgrouse: Shell, hearing: Queue) -> None:
    hearing.call("open_export", "lake", "/lake", "7")
    die(hearing, "t", age="40 days")

    code, found = complete(pgrouse)

    assert (code, found["retention"][0]) == (0, "warn")
    assert found["retention"][1].startswith("held by export lake since ")
    assert "`pgrouse pipeline export /lake --name lake`, or give it up with --forget lake" in found["retention"][1]
