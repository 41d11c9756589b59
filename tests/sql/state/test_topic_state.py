"""messages.topic_state: the state of a topic in the words of every face, and that claims stop where it says so."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sql.queue import Queue, Row

# Each stops topic t or not, at the time of now(); what a claim and topic_state say about it has to be the same.
OPEN = """INSERT INTO messages.breaker (topic, position, changed_at, probe_at, reason)
          VALUES ('t', 'open', messages.now(), messages.now() + interval '%s', '9 of 10 failed')"""
BREAKER = """INSERT INTO messages.topic (topic, breaker) VALUES ('t', '{"pause": "1m"}')
             ON CONFLICT (topic) DO UPDATE SET breaker = excluded.breaker"""
PAUSED = "SELECT messages.pause('t', 'the relay is down', p_resume_in => '%s')"
ALL_PAUSED = "SELECT messages.pause('*', 'the weekend', p_resume_in => '%s')"
CASES: dict[str, tuple[list[str], dict[str, Any]]] = {
    "nothing is set": ([], {"state": "running", "stopped": False, "breaker": None}),
    "it is paused": (
        ["SELECT messages.pause('t')"],
        {"state": "paused", "paused": True, "paused_topic": "t", "resume_at": None},
    ),
    "it is paused until a time": ([PAUSED % "1 h"], {"state": "paused", "paused_reason": "the relay is down"}),
    "its pause is over": (
        [PAUSED % "1 s"],
        {"state": "running", "paused": False, "paused_at": None, "paused_by": None, "resume_at": None},
    ),
    "all are paused": ([ALL_PAUSED % "1 h"], {"state": "paused", "paused_topic": "*", "paused_reason": "the weekend"}),
    "the pause of all is over": ([ALL_PAUSED % "1 s"], {"state": "running", "stopped": False}),
    "it is paused within a pause of all": (
        [PAUSED % "1 h", "SELECT messages.pause('*')"],
        {"paused_topic": "t", "paused_reason": "the relay is down", "resume_at": None},
    ),
    "its breaker is closed": ([BREAKER], {"state": "running", "breaker": "closed", "probe_at": None}),
    "its breaker is open": (
        [BREAKER, OPEN % "1 h"],
        {"state": "breaker", "stopped": True, "breaker": "open", "breaker_reason": "9 of 10 failed"},
    ),
    "its breaker probes": ([BREAKER, OPEN % "0"], {"state": "breaker", "stopped": True, "breaker": "probing"}),
    "its breaker was removed": ([OPEN % "1 h"], {"state": "running", "stopped": False, "breaker": None}),
    "it is paused with an open breaker": (
        [BREAKER, OPEN % "1 h", PAUSED % "2 h"],
        {"state": "paused", "stopped": True, "breaker": "open"},
    ),
}


@pytest.fixture
def queue(queue: Queue) -> Queue:
    """A queue with a live worker of topic t, whose clock stands still."""
    queue.later("0")
    queue.call("register_worker", "w1", "h", 7, "1", ["t"], 10)
    return queue


def state(queue: Queue, topic: str = "t") -> Row:
    return queue.row("SELECT s.* FROM messages.topic_state(ARRAY[%s]) AS s", [topic])


@pytest.mark.parametrize(("steps", "expected"), CASES.values(), ids=CASES)
def test_a_topic_has_one_state_and_a_claim_stops_where_it_says_so(
    queue: Queue, steps: list[str], expected: dict[str, Any]
) -> None:
    for step in steps:
        queue.conn.execute(step.encode())
    queue.later("2 s")
    message = queue.publish()

    found = state(queue)

    assert {name: getattr(found, name) for name in expected} == expected
    policy = queue.row(
        """SELECT p.stopped_until IS NOT NULL AS is_stopped, nullif(p.stopped_until, 'infinity') AS until,
        p.probes IS NOT NULL AS probes
           FROM messages.claim_policy('t', messages.now()) AS p"""
    )
    assert (found.paused or found.breaker == "open", found.breaker in {"open", "probing"}, found.stopped) == (
        *(policy.is_stopped, policy.probes, policy.is_stopped or policy.probes),
    )
    if found.paused:
        assert policy.until == found.resume_at
    if found.stopped:
        assert queue.value("SELECT is_plain FROM messages.plain_policy('t')") is False
    held = queue.value("SELECT held_back FROM messages.paused_topics('{t}', messages.now())")
    assert ("topic t" in held) is found.paused
    assert [row.id for row in queue.claim("t")] == ([] if found.paused or found.breaker == "open" else [message])


def test_without_names_it_lists_the_topics_that_can_be_stopped_on_their_own(queue: Queue) -> None:
    queue.conn.execute((OPEN % "1 h").encode())
    queue.policy("mail", max_attempts=3)
    queue.publish("other")

    assert queue.rows("SELECT s.topic FROM messages.topic_state() AS s") == [("*",), ("mail",), ("t",)]


def test_the_row_of_all_says_whether_all_are_paused_and_nothing_of_a_single_topic(queue: Queue) -> None:
    queue.call("pause", "*")
    queue.policy("*", max_depth=1, breaker={"pause": "1m"})

    found = state(queue, "*")

    assert (found.state, found.paused_topic, found.handled, found.breaker, found.max_depth) == (
        *("paused", "*", None, None, None),
    )


def test_a_topic_that_no_worker_handles_is_unhandled_unless_it_is_stopped(queue: Queue) -> None:
    assert (state(queue, "push").state, state(queue, "push").handled) == ("unhandled", False)
    queue.call("pause", "push")
    assert (state(queue, "push").state, state(queue, "push").handled) == ("paused", False)


def test_a_topic_is_full_as_soon_as_it_refuses_the_next_message(queue: Queue) -> None:
    queue.policy(max_depth=2)
    queue.publish()
    one = state(queue)
    queue.publish()
    two = state(queue)
    with pytest.raises(Exception, match="is full"):
        queue.publish()
    queue.settle("complete", [queue.claim_one()])

    assert [(each.full, each.depth, each.max_depth) for each in (one, two, state(queue))] == [
        (False, 1, 2),
        (True, 2, 2),
        (False, 1, 2),
    ]
