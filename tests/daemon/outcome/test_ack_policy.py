"""Acknowledgement policies: the result of a message whose handler raised, or set no outcome, in every executor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.daemon.process import Daemon, Fleet, Journal
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue

POLICIES = ("ack", "ack_first", "reject_on_error", "nack_on_error", "manual")
HANDLERS = {
    "async": {"handler": "rules:end"},
    "thread": {"handler": "rules:end_in_thread"},
    "process": {"handler": "rules:end_in_process", "isolation": "process", "concurrency": 1},
}
TOPICS = {
    f"{where}.{policy}": {**handler, "ack_policy": policy} for where, handler in HANDLERS.items() for policy in POLICIES
}
everywhere = pytest.mark.parametrize("where", ["async", "thread", "process"])


@pytest.fixture(scope="module")
def database(shared: Database) -> Database:
    return shared


@pytest.fixture(scope="module")
def fleet(database: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """One daemon for all of these tests."""
    fleet = Fleet(tmp_path_factory.mktemp("ack"))
    Queue(database.connect()).policy("*", max_attempts=2, backoff={"kind": "none"})
    fleet.start(
        database.connect(),
        {
            **TOPICS,
            "bare": {"handler": "rules:without_context", "ack_policy": "reject_on_error"},
            "again": {"handler": "rules:complete_again", "ack_policy": "ack"},
            "again.first": {"handler": "rules:complete_again", "ack_policy": "ack_first"},
        },
        dsn=database.dsn,
    )
    yield fleet
    fleet.kill()


@pytest.fixture
def daemon(fleet: Fleet) -> Daemon:
    return fleet.daemons[0]


@pytest.fixture
def archived(queue: Queue, fleet: Fleet) -> Callable[[int], Any]:
    # Each child that dies is followed by a new one, which has to start first.
    return lambda published: eventually(lambda: queue.archived(published), within_s=30)


def work(queue: Queue, where: str, policy: str, **payload: Any) -> int:
    return queue.publish(f"{where}.{policy}", payload=payload)


@everywhere
@pytest.mark.parametrize(
    ("policy", "result", "runs"),
    [
        ("ack", "success", 1),
        ("reject_on_error", "rejected", 1),
        ("nack_on_error", "failed", 2),
        ("manual", "rejected", 1),
    ],
)
def test_the_policy_decides_the_result_of_an_exception(
    queue: Queue, archived: Callable[[int], Any], where: str, policy: str, result: str, runs: int
) -> None:
    published = work(queue, where, policy, then="raise")

    ended = archived(published)
    assert (ended.result, ended.runs) == (result, runs)
    if result != "success":
        assert ended.error.startswith("Traceback")
        assert ended.error.rstrip().endswith("ZeroDivisionError: division by zero")


@everywhere
def test_a_message_that_is_not_acknowledged_is_rejected_under_manual(
    queue: Queue, daemon: Daemon, archived: Callable[[int], Any], where: str
) -> None:
    published = work(queue, where, "manual", then="done")

    assert archived(published).result == "rejected"
    assert archived(published).error.startswith("the handler ended without ctx.ack()")
    daemon.event("message.rejected", message_id=published)


@everywhere
@pytest.mark.parametrize(
    ("actions", "result", "attempts", "state"),
    [
        (["ack"], "success", 1, None),
        (["nack"], "failed", 2, {"page": 3}),
        (["reject"], "rejected", 1, None),
        (["ack", "reject"], "success", 1, None),
        (["reject", "ack"], "rejected", 1, None),
        (["nack", "ack"], "failed", 2, {"page": 3}),
    ],
)
@pytest.mark.parametrize("policy", ["manual", "ack", "reject_on_error"])
def test_the_first_manual_action_counts_under_every_policy(
    queue: Queue,
    archived: Callable[[int], Any],
    where: str,
    policy: str,
    actions: list[str],
    result: str,
    attempts: int,
    state: Any,
) -> None:
    published = work(queue, where, policy, actions=actions, then="raise")

    ended = archived(published)
    assert (ended.result, ended.attempts, ended.state) == (result, attempts, state)


@everywhere
def test_an_acknowledged_message_keeps_the_return_value_unless_ack_got_an_output(
    queue: Queue, archived: Callable[[int], Any], where: str
) -> None:
    returned = work(queue, where, "manual", actions=["ack"], then="done")
    given = work(queue, where, "manual", actions=["ack with output"], then="done")

    assert archived(returned).output == "done"
    assert archived(given).output == {"said": "by ack"}


@everywhere
def test_a_message_succeeds_under_ack_first_whatever_its_handler_does(
    queue: Queue, daemon: Daemon, journal: Journal, archived: Callable[[int], Any], where: str
) -> None:
    published = work(queue, where, "ack_first", then="raise", actions=["reject"])

    journal.entry("start", published)
    ended = archived(published)
    assert (ended.result, ended.error, ended.output) == ("success", None, None)
    event = daemon.event("message.ended_after_completion", message_id=published)
    assert event["reason"].rstrip().endswith("ZeroDivisionError: division by zero")
    assert len(journal.entries("start", published)) == 1


def test_a_handler_without_a_context_has_a_policy_too(queue: Queue, archived: Callable[[int], Any]) -> None:
    published = queue.publish("bare")

    assert archived(published).result == "rejected"


@pytest.mark.parametrize(
    ("topic", "payload", "error"),
    [
        ("again", {"nack": True}, "use one of them or ctx.transaction() or ctx.complete(), not both"),
        ("again.first", {}, "is completed already"),
    ],
)
def test_a_transaction_that_would_complete_a_message_a_second_time_is_refused(
    queue: Queue, journal: Journal, archived: Callable[[int], Any], topic: str, payload: Any, error: str
) -> None:
    published = queue.publish(topic, payload=payload)

    assert error in journal.entry("refused", published)["error"]
    assert archived(published).result == ("success" if topic == "again.first" else "failed")
