"""The registry of workers, also of those over HTTP."""

from __future__ import annotations

import psycopg
import pytest

from tests.sql.queue import Queue, Row

# messages.check_worker_name: which worker names are valid.


@pytest.mark.parametrize("name", ["host:1:ab", "x" * 300, "Zürich", None])
def test_a_valid_name_is_accepted(queue: Queue, name: str | None) -> None:
    queue.call("check_worker_name", name)


@pytest.mark.parametrize("name", ["", "x" * 301, "a\u202eb", "a\nb"])
def test_an_invalid_name_is_refused_with_the_fix(queue: Queue, name: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="name of a worker is") as refused:
        queue.call("check_worker_name", name)

    assert "1 to 300 printable characters" in str(refused.value.diag.message_hint)


# messages.drain_worker: records that a worker is asked to stop, by whom and since when.


def test_the_row_of_the_worker_has_the_user_and_the_time(queue: Queue) -> None:
    queue.call("register_worker", "w", "host", 1, "0", ["t"], 1)
    queue.row("SELECT set_config('messages.actor', 'ana', false)")

    assert queue.call("drain_worker", "w") is True

    first = queue.row("SELECT * FROM messages.worker")
    assert first.drain_asked_by == "ana"
    recorded = queue.row("SELECT * FROM messages.audit")
    assert (recorded.actor, recorded.action, recorded.target) == ("ana", "drain_worker", "w")
    queue.call("drain_worker", "w")
    assert queue.value("SELECT drain_asked_at FROM messages.worker") == first.drain_asked_at


@pytest.mark.parametrize(("function", "arguments"), [("drain_worker", []), ("scale_worker", [3])])
def test_neither_a_job_on_spark_which_would_not_read_it_nor_an_unregistered_worker_is_asked(
    queue: Queue, function: str, arguments: list[int]
) -> None:
    queue.call("register_worker", "spark-1", "host", 1, "0", ["t"], 1000)
    queue.call("touch_worker", "spark-1", '{"engine": "spark", "in_flight": 0}')

    with pytest.raises(psycopg.errors.InvalidParameterValue, match="is a job on Spark"):
        queue.call(function, "spark-1", *arguments)

    assert queue.call(function, "unregistered", *arguments) is False
    assert queue.row("SELECT drain_asked_at, requested_concurrency FROM messages.worker") == (None, None)
    assert queue.rows("SELECT FROM messages.audit") == []


def test_a_worker_over_http_is_asked(queue: Queue) -> None:
    queue.call("touch_http_worker", "http:t/w", "host", ["t"], 10)

    assert queue.call("drain_worker", "http:t/w") is True


# messages.register_worker: adds a worker to the registry.

WORKERS = "SELECT name, host, pid, version, topics, concurrency, stopping FROM messages.worker"


def test_a_worker_is_added_to_the_registry(queue: Queue) -> None:
    queue.call("register_worker", "w", "host", 42, "1.0", ["a", "b"], 10)

    assert tuple(queue.row(WORKERS)) == ("w", "host", 42, "1.0", ["a", "b"], 10, False)


def test_a_restarted_worker_replaces_its_row(queue: Queue) -> None:
    queue.call("register_worker", "w", "host", 42, "1.0", ["a"], 10)
    queue.call("touch_worker", "w", {}, True)
    started_at = queue.value("SELECT started_at FROM messages.worker")

    queue.call("register_worker", "w", "host", 43, "1.1", ["b"], 20)

    assert tuple(queue.row(WORKERS)) == ("w", "host", 43, "1.1", ["b"], 20, False)
    assert queue.value("SELECT seen_at > started_at FROM messages.worker") is True
    assert queue.value("SELECT started_at FROM messages.worker") == started_at


# messages.scale_worker: records how many handlers a worker is to run at once.


@pytest.fixture
def daemon(queue: Queue) -> None:
    queue.call("register_worker", "w", "host", 1, "0", ["t"], 10)
    queue.call("touch_worker", "w", '{"listener": "listening"}')


@pytest.mark.usefixtures("daemon")
def test_the_row_of_the_worker_has_the_number_until_it_is_taken_back(queue: Queue) -> None:

    assert queue.call("scale_worker", "w", 3) is True

    assert queue.row("SELECT requested_concurrency AS requested, concurrency FROM messages.worker") == (3, 10)
    recorded = queue.row("SELECT action, target, detail FROM messages.audit")
    assert tuple(recorded) == ("scale_worker", "w", {"concurrency": 3})
    queue.call("scale_worker", "w")
    assert queue.value("SELECT requested_concurrency FROM messages.worker") is None


@pytest.mark.usefixtures("daemon")
@pytest.mark.parametrize("concurrency", [0, -1, 10_001])
def test_a_number_that_no_configuration_may_have_is_refused(queue: Queue, concurrency: int) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="cannot run"):
        queue.call("scale_worker", "w", concurrency)


def test_a_worker_over_http_is_refused(queue: Queue) -> None:
    queue.call("touch_http_worker", "http:t/w", "host", ["t"], 10)

    with pytest.raises(psycopg.errors.InvalidParameterValue, match="claims over HTTP"):
        queue.call("scale_worker", "http:t/w", 3)


# messages.touch_worker: a sign of life of a worker.


def test_a_sign_of_life_updates_the_time_and_the_status(queue: Queue) -> None:
    queue.call("register_worker", "w", "host", 42, "1.0", ["a"], 10)
    queue.conn.execute("UPDATE messages.worker SET seen_at = '2020-01-01'")

    assert queue.call("touch_worker", "w", {"in_flight": 3}, True) is True

    worker = queue.row("SELECT *, seen_at > clock_timestamp() - interval '1 minute' AS alive FROM messages.worker")
    assert (worker.alive, worker.status, worker.stopping) == (True, {"in_flight": 3}, True)


@pytest.mark.parametrize("status", ["[]", "null", "5"])
def test_a_status_is_an_object_as_those_who_read_it_expect(queue: Queue, status: str) -> None:
    queue.call("register_worker", "w", "host", 42, "1.0", ["a"], 10)

    with pytest.raises(psycopg.errors.CheckViolation):
        queue.rows("SELECT messages.touch_worker('w', %s::jsonb)", [status])


def test_an_unregistered_worker_is_reported(queue: Queue) -> None:
    assert queue.call("touch_worker", "unregistered", {}) is False
    assert queue.rows("SELECT * FROM messages.worker") == []


def test_a_locked_row_is_skipped_and_the_next_sign_counts(queue: Queue, other: Queue) -> None:
    queue.call("register_worker", "w", "host", 42, "1.0", ["a"], 10)
    other.conn.execute("SET lock_timeout = '2s'")
    with queue.conn.transaction():
        queue.call("drain_worker", "w")
        held = other.call("touch_worker", "w", {"in_flight": 3})
        assert other.value("SELECT status FROM messages.worker") == {}

    assert (held, other.call("touch_worker", "w", {"in_flight": 4})) == (True, True)
    worker = queue.row("SELECT * FROM messages.worker")
    assert worker.status == {"in_flight": 4}
    assert worker.drain_asked_at is not None


# messages.unregister_worker: removes a worker from the registry.


def test_only_this_worker_and_its_flag_are_deleted(queue: Queue) -> None:
    for name in ("a", "b"):
        queue.call("register_worker", name, "host", 42, "1.0", ["t"], 10)
        queue.arm(name)

    queue.call("unregister_worker", "a")

    assert [row.name for row in queue.rows("SELECT name FROM messages.worker")] == ["b"]
    assert [row.worker for row in queue.rows("SELECT worker FROM messages.sleeper")] == ["b"]


# messages.touch_http_holders: a worker that extends a lock is alive, even if it does not claim.


def seconds_unseen(queue: Queue, name: str) -> float:
    query = "SELECT extract(epoch FROM clock_timestamp() - seen_at)::float8 FROM messages.worker WHERE name = %s"
    return float(queue.value(query, [name]))


def test_only_the_holders_over_http_are_updated(queue: Queue) -> None:
    for name in ("http:a/1", "http:a/two"):
        queue.call("touch_http_worker", name, "h", ["t"], 1)
    queue.call("register_worker", "daemon", "host", 42, "1.0", ["t"], 10)
    queue.publish_many(2)
    held = [queue.claim(worker=name, limit=1)[0] for name in ("http:a/1", "daemon")]
    queue.conn.execute("UPDATE messages.worker SET seen_at = clock_timestamp() - interval '60 s'")

    queue.call("touch_http_holders", [each.id for each in held])

    assert seconds_unseen(queue, "http:a/1") < 30
    assert seconds_unseen(queue, "http:a/two") > 30
    assert seconds_unseen(queue, "daemon") > 30


def test_a_locked_row_is_not_waited_for(queue: Queue, other: Queue) -> None:
    queue.call("touch_http_worker", "http:a/1", "h", ["t"], 1)
    queue.publish()
    (held,) = queue.claim(worker="http:a/1")
    queue.conn.execute("UPDATE messages.worker SET seen_at = clock_timestamp() - interval '60 s'")
    other.conn.execute("SET lock_timeout = '2s'")

    with queue.conn.transaction():
        queue.call("drain_worker", "http:a/1")
        other.call("touch_http_holders", [held.id])

    assert seconds_unseen(queue, "http:a/1") > 30


# messages.touch_http_worker: a worker over HTTP requests messages; so it is registered, and learns when it should stop.

NAME = "http:shop/w"


def claims(queue: Queue, topics: tuple[str, ...] = ("t",), name: str = NAME) -> bool:
    return bool(queue.call("touch_http_worker", name, "10.0.0.7", list(topics), 5))


def worker(queue: Queue, name: str = NAME) -> Row:
    return queue.row("SELECT * FROM messages.worker WHERE name = %s", [name])


def not_seen_for(queue: Queue, time: str) -> None:
    queue.conn.execute("UPDATE messages.worker SET seen_at = clock_timestamp() - %s::interval", [time])


def test_the_first_claim_adds_the_worker_and_every_other_updates_what_it_requests(queue: Queue) -> None:
    assert claims(queue) is False
    entered = worker(queue)
    not_seen_for(queue, "10 s")
    assert claims(queue, ("t", "u")) is False

    seen = worker(queue)
    assert (entered.kind, entered.host, entered.topics, entered.concurrency) == ("http", "10.0.0.7", ["t"], 5)
    assert seen.topics == ["t", "u"]
    assert (seen.started_at, seen.seen_at > entered.seen_at) == (entered.started_at, True)
    assert queue.call("is_handled", "u") is True


def test_a_worker_that_is_asked_to_drain_learns_of_it_and_handles_nothing_more(queue: Queue) -> None:
    claims(queue)
    queue.publish()
    queue.claim(worker=NAME)
    queue.call("drain_worker", NAME)

    assert (claims(queue), claims(queue)) == (True, True)
    assert worker(queue).stopping
    assert queue.call("is_handled", "t") is False, "a message that it still holds does not count"


def test_a_worker_that_claims_minutes_later_still_learns_of_it(queue: Queue) -> None:
    claims(queue)
    queue.call("drain_worker", NAME)
    not_seen_for(queue, "4 minutes")

    assert claims(queue) is True


def test_a_worker_that_returns_half_a_minute_after_it_learnt_counts_as_restarted(queue: Queue) -> None:
    claims(queue)
    before = worker(queue)
    queue.call("drain_worker", NAME)
    claims(queue)
    not_seen_for(queue, "31 s")

    assert claims(queue) is False
    restarted = worker(queue)
    assert (restarted.stopping, restarted.drain_asked_at, restarted.drain_asked_by) == (False, None, None)
    assert restarted.started_at > before.started_at


def test_touch_http_worker_a_locked_row_is_not_waited_for(queue: Queue, other: Queue) -> None:
    claims(queue)
    other.conn.execute("SET lock_timeout = '2s'")
    with queue.conn.transaction():
        queue.call("drain_worker", NAME)
        during = claims(other)

    assert (during, claims(other)) == (False, True)


def test_at_most_a_thousand_workers_are_registered(queue: Queue) -> None:
    queue.conn.execute(
        "SELECT messages.touch_http_worker(format('http:t%s/%s', n % 10, n), 'h', ARRAY['t'], 1) "
        "FROM generate_series(1, 1000) AS n"
    )

    assert claims(queue) is False
    assert worker(queue) is None
    assert queue.value("SELECT count(*) FROM messages.worker") == 1000


def test_at_most_a_hundred_of_one_token_are_registered_and_other_tokens_have_room(queue: Queue) -> None:
    queue.conn.execute(
        "SELECT messages.touch_http_worker('http:shop/' || n, 'h', ARRAY['t'], 1) FROM generate_series(1, 110) AS n"
    )

    assert (claims(queue), worker(queue)) == (False, None)
    assert queue.value("SELECT count(*) FROM messages.worker") == 100
    assert (claims(queue, name="http:shop2/w"), worker(queue, "http:shop2/w").topics) == (False, ["t"])
    assert (claims(queue, ("u",), "http:shop/7"), worker(queue, "http:shop/7").topics) == (False, ["u"])


def test_the_name_of_a_daemon_is_not_taken(queue: Queue) -> None:
    queue.call("register_worker", NAME, "host", 42, "1.0", ["a"], 10)
    queue.call("drain_worker", NAME)

    assert claims(queue) is False
    assert (worker(queue).kind, worker(queue).topics) == ("daemon", ["a"])


def test_a_worker_that_left_is_no_problem_and_is_deleted_after_five_minutes(queue: Queue) -> None:
    claims(queue)
    not_seen_for(queue, "4 minutes")
    assert (queue.call("prune"), worker(queue) is None) == (0, False)
    found = {row.code: row.level for row in queue.rows("SELECT * FROM messages.examine_workers()")}
    not_seen_for(queue, "6 minutes")
    queue.call("prune")

    assert (found["workers_gone"], found["worker_versions"]) == ("ok", "ok")
    assert worker(queue) is None


# messages.worker_state: who is alive, who handles, and in which state each worker is.


def add(queue: Queue, name: str, kind: str, seen: str, change: str = "") -> None:
    queue.conn.execute(
        """INSERT INTO messages.worker (name, host, pid, version, topics, concurrency, kind, seen_at)
           VALUES (%s, 'h', 1, '1', '{t}', 4, %s, clock_timestamp() - %s::interval)""",
        [name, kind, seen],
    )
    if change:
        queue.conn.execute(f"UPDATE messages.worker SET {change} WHERE name = %s".encode(), [name])


@pytest.mark.parametrize(
    ("kind", "seen", "change", "expected"),
    [
        ("daemon", "20 s", "", (True, "working", True)),
        ("daemon", "20 s", "drain_asked_at = now()", (True, "draining", True)),
        ("daemon", "20 s", "drain_asked_at = now(), stopping = true", (True, "stopping", False)),
        ("daemon", "31 s", "", (False, "silent", False)),
        ("daemon", "31 s", "stopping = true", (False, "silent", False)),
        ("http", "110 s", "", (True, "working", True)),
        ("http", "121 s", "", (False, "gone", False)),
    ],
)
def test_a_worker_is_alive_as_long_as_one_of_its_kind_reports(
    queue: Queue, kind: str, seen: str, change: str, expected: tuple[bool, str, bool]
) -> None:
    add(queue, "w", kind, seen, change)

    row = queue.row("SELECT alive, state, handles FROM messages.worker_state")

    assert (row.alive, row.state, row.handles) == expected


def test_the_number_of_handlers_is_what_it_was_scaled_to(queue: Queue) -> None:
    add(queue, "w", "daemon", "0 s", "requested_concurrency = 9, status = jsonb_build_object('listener', 'degraded')")

    row = queue.row("SELECT concurrency, configured_concurrency, listener FROM messages.worker_state")

    assert (row.concurrency, row.configured_concurrency, row.listener) == (9, 4, "degraded")
