"""`pgrouse worker`."""

from __future__ import annotations

from collections.abc import Callable

from tests.cli.shell import Shell
from tests.cli.stage import silence, start
from tests.sql.queue import Queue


def test_workers_are_listed_with_their_state(pgrouse: Shell, queue: Queue) -> None:
    start(queue, "w1", "a", "b")
    start(queue, "w2", "c")
    start(queue, "w3", "d")
    queue.conn.execute("UPDATE messages.worker SET stopping = true WHERE name = 'w2'")
    silence(queue, "w3", 31)

    rows = pgrouse("worker", "list", "--json").objects
    text = pgrouse("worker", "list").out

    assert [(row["name"], row["state"], row["topics"]) for row in rows] == [
        ("w1", "working", ["a", "b"]),
        ("w2", "stopping", ["c"]),
        ("w3", "silent", ["d"]),
    ]
    assert (rows[0]["host"], rows[0]["pid"], rows[0]["concurrency"], rows[0]["version"]) == ("h1", 4121, 100, "0.1.0")
    assert text.splitlines()[0].split() == ["NAME", "STATE", "SEEN", "UP", "HOST", "PID", "SLOTS", "TOPICS"]
    assert text.splitlines()[1].endswith("a, b")


def test_an_empty_list_explains_how_to_start_a_worker(pgrouse: Shell) -> None:
    ended = pgrouse("worker", "list")

    assert (ended.code, ended.out, ended.err) == (0, "", "no worker: start one with `pgrouse run`\n")


def test_an_analyst_may_list_them(pgrouse: Shell, queue: Queue, acting_as: Callable[[str], None]) -> None:
    start(queue, "w1")
    acting_as("messages_analyst")

    assert len(pgrouse("worker", "list", "--json").objects) == 1


def test_a_worker_is_scaled_and_runs_as_configured_again(pgrouse: Shell, queue: Queue) -> None:
    queue.call("register_worker", "w", "host", 1, "0", ["t"], 10)
    queue.call("touch_worker", "w", '{"listener": "listening"}')

    scaled = pgrouse("worker", "scale", "w", "3")

    assert (scaled.code, scaled.out) == (0, "asked w to run 3 handlers at once\n")
    assert [row["concurrency"] for row in pgrouse("worker", "list", "--json").objects] == [3]
    back = pgrouse("worker", "scale", "w")
    assert (back.code, back.out) == (0, "asked w to run as many handlers as it is configured for\n")
    (row,) = pgrouse("worker", "list", "--json").objects
    assert (row["concurrency"], row["configured_concurrency"]) == (10, 10)
    assert pgrouse("worker", "scale", "unknown", "3").code == 1
    assert pgrouse("worker", "scale", "w", "0").code == 2


def test_a_worker_is_requested_to_drain(pgrouse: Shell, queue: Queue) -> None:
    queue.call("register_worker", "w", "host", 1, "0", ["t"], 1)

    ended = pgrouse("worker", "drain", "w")

    assert (ended.code, ended.out) == (0, "asked w to drain\n")
    assert [row["state"] for row in pgrouse("worker", "list", "--json").objects] == ["draining"]
    assert pgrouse("worker", "drain", "unknown").code == 1


def test_the_list_shows_how_many_messages_of_a_topic_each_may_run(pgrouse: Shell, queue: Queue) -> None:
    queue.policy("orders.*", worker_concurrency=3)
    queue.policy("mail", worker_concurrency=0)
    start(queue, "w1", "orders.eu", "mail")
    start(queue, "w2", "orders.*")

    rows = pgrouse("worker", "list", "--json").objects
    text = pgrouse("worker", "list").out.splitlines()

    assert [row["topic_limits"] for row in rows] == [{"orders.eu": 3}, {"orders.*": 3}]
    assert [line.rsplit("  ", 1)[-1] for line in text] == ["LIMITS", "orders.eu 3", "orders.* 3"]


def test_a_worker_is_scaled_for_one_topic(pgrouse: Shell, queue: Queue) -> None:
    queue.policy("mail", worker_concurrency=5)
    start(queue, "w1", "mail")

    scaled = pgrouse("worker", "scale", "w1", "2", "--topic", "mail")
    limits = pgrouse("worker", "list", "--json").object["topic_limits"]
    back = pgrouse("worker", "scale", "w1", "--topic", "mail")
    refused = pgrouse("worker", "scale", "w1", "2", "--topic", "post")

    assert (scaled.code, scaled.out, limits) == (0, "asked w1 to run 2 messages of mail at once\n", {"mail": 2})
    assert (back.code, back.out) == (0, "asked w1 to run mail as its policy says\n")
    assert "worker w1 does not handle topic post" in refused.err
    assert pgrouse("worker", "list", "--json").object["topic_limits"] == {"mail": 5}
