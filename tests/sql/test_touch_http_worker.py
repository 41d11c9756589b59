"""messages.touch_http_worker: a worker over HTTP requests messages; so it is registered, and learns when it should stop."""

from __future__ import annotations

from tests.sql.queue import Queue, Row

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


def test_a_locked_row_is_not_waited_for(queue: Queue, other: Queue) -> None:
    claims(queue)
    other.conn.execute("SET lock_timeout = '2s'")
    with queue.conn.transaction():
        queue.call("drain_worker", NAME)
        meanwhile = claims(other)

    assert (meanwhile, claims(other)) == (False, True)


def test_at_most_a_thousand_workers_are_registered(queue: Queue) -> None:
    queue.conn.execute(
        "SELECT messages.touch_http_worker(format('http:t%s/%s', n % 10, n), 'h', ARRAY['t'], 1) FROM generate_series(1, 1000) AS n"
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
