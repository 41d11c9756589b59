"""`pgrouse health`."""

from __future__ import annotations

import socket

import pytest

from tests.cli.shell import Shell
from tests.cli.stage import silence, start
from tests.sql.queue import Queue

HERE = socket.gethostname()


def test_a_worker_of_this_host_that_was_seen_is_well(pgrouse: Shell, queue: Queue) -> None:
    start(queue, "w1", host=HERE)

    ended = pgrouse("health")

    assert (ended.code, ended.err) == (0, "")
    assert [line.split()[:2] for line in ended.out.splitlines()] == [
        ["ok", "database"],
        ["ok", "schema"],
        ["ok", "worker"],
    ]
    assert pgrouse("health", "--json").object == {"ok": True, "problem": None}


@pytest.mark.parametrize(
    ("host", "silent_s", "arguments", "said"),
    [
        ("other", 0, [], f"there is no worker on host {HERE}: start one with `pgrouse run`"),
        (HERE, 31, [], "w1 was last seen 31s ago: see its log"),
        (HERE, 0, ["--worker", "w2"], "there is no worker w2: start one with `pgrouse run`"),
    ],
)
def test_no_worker_or_a_silent_one_is_a_problem(
    pgrouse: Shell, queue: Queue, host: str, silent_s: int, arguments: list[str], said: str
) -> None:
    start(queue, "w1", host=host)
    silence(queue, "w1", silent_s)

    assert pgrouse("health", *arguments, "--json").object == {"ok": False, "problem": said}
    ended = pgrouse("health", *arguments)
    assert ended.code == 1
    assert ended.out.splitlines()[-1] == f"fail  worker    {said}"


def test_a_worker_can_be_named_wherever_it_runs(pgrouse: Shell, queue: Queue) -> None:
    start(queue, "w1", host="other")

    assert pgrouse("health", "--worker", "w1").code == 0


def test_the_database_alone_can_be_checked(pgrouse: Shell) -> None:
    assert pgrouse("health", "--no-worker").code == 0


def test_an_older_schema_is_exit_code_78(pgrouse: Shell, queue: Queue) -> None:
    queue.conn.execute("DELETE FROM messages.migration WHERE name = 'migrations/0007_alert.sql'")

    ended = pgrouse("health")

    assert ended.code == 78
    assert ended.err.startswith("pgrouse: the schema is older than this version")
