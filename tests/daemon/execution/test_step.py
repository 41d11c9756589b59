"""ctx.step: a completed step does not run again, whatever happens to its attempt."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tests.daemon.process import PGROUSE, Daemon, Journal, end_locks
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue, Row

Start = Callable[..., Daemon]
# Whether a worker has asked since then what is saved, and the server has answered.


def ran(journal: Journal, message_id: int) -> list[tuple[str, int]]:
    """Which steps ran in which attempt."""
    return [(entry["step"], entry["attempt"]) for entry in journal.entries("ran") if entry["id"] == message_id]


def ended(queue: Queue, message_id: int) -> Row:
    # A child is a new interpreter: on a busy machine its start is slow.
    return eventually(lambda: queue.archived(message_id), within_s=90)


def test_the_first_step_does_not_run_again_after_a_kill_between_two_steps(
    start: Start, queue: Queue, journal: Journal
) -> None:
    queue.policy("job", max_attempts=9, lock_expired_delay="0 s")
    first = start({"job": "steps:die_between"})
    published = queue.publish("job")
    first.exit_code()
    end_locks(queue.conn, first)

    start({"job": "steps:die_between"})

    archived = ended(queue, published)
    assert (archived.result, archived.error, archived.output[0]) == ("success", None, {"by": 1})
    assert [step for step, _ in ran(journal, published)] == ["first", "second"]
    assert ran(journal, published)[0] == ("first", 1)
    assert queue.value("SELECT count(*) FROM messages.step") == 0


def test_steps_survive_retries_and_redrives_in_coroutines_and_threads(
    start: Start, queue: Queue, journal: Journal
) -> None:
    queue.policy("thread", max_attempts=2, backoff={"kind": "none"})
    start({"thread": "steps:retry_between", "dead": "steps:fail_once"})
    in_thread, dies = queue.publish("thread"), queue.publish("dead", payload='"die"')

    assert ended(queue, in_thread).output == [{"by": 1}, {"by": 2}]
    assert ended(queue, dies).result == "failed"
    again = queue.row("SELECT * FROM messages.redrive_edited(%s, '1')", [dies]).message_id

    assert ended(queue, again).output == {"by": 1}
    assert ran(journal, in_thread) == [("first", 1), ("second", 2)]
    assert (ran(journal, dies), ran(journal, again)) == ([("first", 1)], [])


def test_the_writes_of_a_step_in_its_own_transaction_happen_exactly_once(
    start: Start, queue: Queue, journal: Journal
) -> None:
    queue.conn.execute("CREATE TABLE effect (message_id bigint)")
    for topic in ("loop", "thread"):
        queue.policy(topic, max_attempts=5, backoff={"kind": "none"})
    start({"loop": "steps:insert_once", "thread": "steps:insert_once_in_thread", "block": "steps:roll_back"})
    published = [queue.publish(topic) for topic in ("loop", "thread")]
    block = queue.publish("block")

    assert [ended(queue, each).attempts for each in published] == [3, 3]
    assert ended(queue, block).result == "success"
    eventually(lambda: ("after", 1) in ran(journal, block))
    effects = queue.rows("SELECT message_id, count(*) FROM effect GROUP BY 1 ORDER BY 1")
    assert [tuple(row) for row in effects] == [(each, 1) for each in [*published, block]]
    assert [ran(journal, each) for each in published] == [[("insert", 1), ("insert", 2)]] * 2
    assert [step for step, _ in ran(journal, block)] == ["before", "inside", "insert", "inside", "insert", "after"]


@pytest.mark.long
def test_results_have_types_and_a_result_that_cannot_be_stored_names_the_reason(
    start: Start, queue: Queue, journal: Journal
) -> None:
    queue.policy("typed", max_attempts=2, backoff={"kind": "none"})
    process = {"handler": "steps:in_a_child", "isolation": "process"}
    start({"typed": "steps:typed", "refused": "steps:refused", "thread": "steps:awaits_in_thread", "child": process})
    typed, refused = queue.publish("typed"), queue.publish("refused")
    thread, child = queue.publish("thread"), queue.publish("child")

    assert ended(queue, typed).result == "success"
    said = [entry["said"] for entry in journal.entries("typed", typed)]
    assert said == [[["Label(number=7, tags=('a',))"] * 4, {"number": 7, "tags": ["a"]}, [1, 3]]] * 2
    assert ended(queue, refused).result == "success"
    why = {entry["case"]: entry["said"] for entry in journal.entries("refused", refused)}
    cases = ["no json", "large", "wider as jsonb", "another type", "no type", "name", "twice", "another attempt"]
    assert list(why) == cases
    assert "the result of step 'd' is no int: (whole): Input should be a valid integer" in why["another type"]
    assert "annotate its function with what it returns, or give returns=" in why["another type"]
    assert "the return annotation of buy_later cannot be read: name 'Late' is not defined" in why["no type"]
    assert "the result of step 'b' has 1,100,002 bytes, 1,048,576 is the limit" in why["large"]
    assert "done already in this attempt" in why["twice"]
    assert "was kept by another attempt in the meantime" in why["another attempt"]
    assert "its function is async and its handler is not" in ended(queue, thread).error
    assert 'ctx.step() and ctx.signal_url() are not available with isolation = "process"' in ended(queue, child).error


def test_a_handler_that_lost_the_message_saves_no_step(
    start: Start, queue: Queue, journal: Journal, database: Database
) -> None:
    start({"job": "steps:lose"}, environ={"RUNS": database.dsn})

    published = queue.publish("job")

    assert "the result of step 'a' was not kept" in journal.entry("lost", published)["said"]
    assert queue.value("SELECT count(*) FROM messages.step") == 0


@pytest.mark.long
def test_message_show_lists_the_steps(start: Start, queue: Queue, database: Database) -> None:
    daemon = start({"job": "steps:die_between"})
    published = queue.publish("job")
    daemon.exit_code()

    shown = subprocess.run(
        [PGROUSE, "message", "show", str(published), "--json"],
        env={**os.environ, "PGROUSE_DSN": database.dsn},
        capture_output=True,
        check=True,
    )

    assert [(step["name"], step["result"]) for step in json.loads(shown.stdout)["steps"]] == [("first", '{"by": 1}')]


EFFECTS = "CREATE TABLE effect (message_id bigint)"
IN_STEPS = {
    "calls_in_step": [3, 1, 2],
    "calls_in_step_of_thread": [3, 1, 2],
    "steps_beside_each_other": [0, 1, 2],
    "calls_in_block": [3, 1, 2],
    "batch_in_block": None,
}


@pytest.mark.parametrize("pool_size", [1, pytest.param(2, marks=pytest.mark.long)])
def test_what_is_called_inside_of_a_transaction_needs_no_second_connection(
    start: Start, queue: Queue, pool_size: int
) -> None:
    queue.conn.execute(EFFECTS)
    topics: dict[str, dict[str, Any]] = {function: {"handler": f"steps:{function}"} for function in IN_STEPS}
    topics["batch_in_block"] |= {"batch_size": 1, "concurrency": 5}
    start(topics, database={"pool_size": pool_size})

    for function, output in IN_STEPS.items():
        published = [queue.publish(function) for _ in range(5)]

        archived = [ended(queue, each) for each in published]
        assert [(function, each.output, each.error) for each in archived] == [(function, output, None)] * 5
        assert len(queue.rows("DELETE FROM messages.message WHERE topic = 'follow' RETURNING id")) == 15


def test_a_step_that_is_rolled_back_may_be_done_again_with_all_in_it(
    start: Start, queue: Queue, journal: Journal
) -> None:
    start({"job": "steps:again_after_a_rollback"})

    published = queue.publish("job")

    assert ended(queue, published).output == "done"
    assert [step for step, _ in ran(journal, published)] == ["outer", "inner"] * 2
    assert queue.value("SELECT array_agg(payload::text) FROM messages.message WHERE topic = 'follow'") == ["false"]


def test_a_task_that_a_step_leaves_running_does_not_use_its_connection(start: Start, queue: Queue) -> None:
    start({"job": "steps:left_behind"}, database={"pool_size": 1})

    assert ended(queue, queue.publish("job")).output == [True]


def test_a_block_or_a_completion_inside_of_a_transaction_is_refused_at_once(start: Start, queue: Queue) -> None:
    start({"job": "steps:misplaced", "thread": "steps:misplaced_in_thread"}, database={"pool_size": 1})

    in_step, completing, in_block = ended(queue, queue.publish("job")).output
    (in_thread,) = ended(queue, queue.publish("thread")).output

    assert in_step == in_block == in_thread
    assert (
        "ctx.transaction() inside of another block of it, or of the function of ctx.step(transaction=True)" in in_step
    )
    assert "ctx.complete() in the function of ctx.step(transaction=True): call it behind the step" in completing


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("transaction", [False, True])
def test_a_step_that_forgets_to_await_fails_and_runs_again_in_the_next_attempt(
    start: Start, queue: Queue, journal: Journal, transaction: bool, keeps: bool
) -> None:
    queue.policy("job", max_attempts=2, backoff={"kind": "none"})
    start({"job": "steps:forgets_in_step"})

    published = queue.publish("job", payload=json.dumps({"transaction": transaction, "keeps": keeps}))

    assert ended(queue, published).output == "done"
    assert ran(journal, published) == [("outer", 1), ("outer", 2), ("inner", 2)]
    (refused,) = journal.entries("refused")
    # The one that is named depends on the order in which they are destroyed.
    assert refused["said"].startswith("ctx.")
    assert refused["said"].endswith("await it")
    assert queue.value("SELECT count(*) FROM messages.message WHERE topic = 'follow'") == 1


def test_what_is_made_outside_of_a_step_may_be_awaited_after_it(start: Start, queue: Queue) -> None:
    start({"job": "steps:makes_before_and_beside"})

    archived = ended(queue, queue.publish("job"))

    assert (archived.output, archived.error) == (3, None)
    assert queue.value("SELECT count(*) FROM messages.message WHERE topic = 'follow'") == 2


TRANSACTIONS = """
    SELECT count(*) AS written, count(DISTINCT x) AS transactions
    FROM (SELECT xmin::text FROM effect
          UNION ALL SELECT xmin::text FROM messages.message WHERE topic = 'follow'
          UNION ALL SELECT xmin::text FROM messages.message_archive
          WHERE topic IN ('left_in_block', 'left_in_batch')) AS each (x)
"""
# What is written in the transaction.
LEFT = {"left_in_block": 4, "left_in_step": 3, "left_in_batch": 2}


@pytest.mark.parametrize("function", LEFT)
def test_a_transaction_ends_after_the_calls_that_it_leaves_to_tasks(start: Start, queue: Queue, function: str) -> None:
    queue.conn.execute(EFFECTS)
    batch = {"batch_size": 1} if function == "left_in_batch" else {}
    start({function: {"handler": f"steps:{function}", **batch}})

    archived = ended(queue, queue.publish(function, payload="false"))

    assert (archived.result, archived.error) == ("success", None)
    assert tuple(queue.row(TRANSACTIONS)) == (LEFT[function], 1)


@pytest.mark.parametrize("function", LEFT)
def test_a_transaction_that_fails_cancels_the_calls_that_it_leaves_to_tasks(
    start: Start, queue: Queue, function: str
) -> None:
    queue.conn.execute(EFFECTS)
    batch = {"batch_size": 1} if function == "left_in_batch" else {}
    start({function: {"handler": f"steps:{function}", **batch}}, database={"pool_size": 1})
    queue.policy(function, max_attempts=1)
    published = queue.publish(function, payload="true")

    assert "ValueError: undone" in ended(queue, published).error
    assert queue.value("SELECT count(*) FROM effect") == 0
    assert queue.value("SELECT count(*) FROM messages.message WHERE topic = 'follow'") == 0


def test_a_call_that_fails_in_a_task_fails_the_transaction_that_it_was_left_in(start: Start, queue: Queue) -> None:
    start({"job": "steps:fails_in_task"})
    queue.policy("job", max_attempts=1)

    error = ended(queue, queue.publish("job")).error

    assert "a ctx.publish() or ctx.step() in a task failed while the end of its transaction waited for it" in error
