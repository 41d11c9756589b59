"""The workers are down: what is missed, from when on, and that every front end is told the same."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sql.queue import Queue, Row


@pytest.fixture(autouse=True)
def _a_server_that_has_run_for_a_while(queue: Queue) -> None:
    """In its first 30 seconds nothing is reported: workers connect again."""
    queue.later("31 s")


def start(queue: Queue, name: str, *topics: str) -> None:
    queue.call("register_worker", name, "host", 42, "1.0", list(topics or ("t",)), 10)


def kill(queue: Queue, name: str, ago: str = "1 minute") -> None:
    """Let a worker be seen for the last time so long ago."""
    queue.conn.execute("UPDATE messages.worker SET seen_at = now() - %s::interval WHERE name = %s", [ago, name])


def problems(queue: Queue) -> list[tuple[str, str | None]]:
    return [(row.kind, row.topic) for row in queue.rows("SELECT * FROM messages.open_conditions()")]


def down(queue: Queue) -> Row:
    """Return the row about the workers; None: they are not down."""
    return queue.row("SELECT * FROM messages.open_conditions() WHERE kind = 'workers_down'")


def require(queue: Queue, workers: int) -> None:
    queue.conn.execute("UPDATE messages.alert_threshold SET min_workers = %s WHERE topic = '*'", [workers])


def test_when_the_last_worker_died_the_first_problem_names_all_and_when_they_were_seen(queue: Queue) -> None:
    start(queue, "worker-1")
    start(queue, "worker-2")
    queue.publish_many(3, "legacy", wait="-1 hour")
    kill(queue, "worker-1", "3 minutes")
    assert down(queue) is None

    kill(queue, "worker-2", "2 minutes")

    (first, *_) = queue.rows("SELECT * FROM messages.open_conditions()")
    seen = {
        row.name: row.at
        for row in queue.rows(
            "SELECT w.name, to_char(w.seen_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS \"UTC\"') AS at "
            "FROM messages.worker AS w"
        )
    }
    assert (first.kind, first.severity, first.topic) == ("workers_down", "page", None)
    assert first.what == (
        f"no worker is alive: worker-2 was last seen at {seen['worker-2']}, "
        f"worker-1 was last seen at {seen['worker-1']}"
    )
    assert first.since == queue.value("SELECT max(seen_at) FROM messages.worker")
    assert "pgrouse run" in first.fix


def test_a_worker_that_was_seen_within_thirty_seconds_is_not_missed(queue: Queue) -> None:
    start(queue, "w")
    kill(queue, "w", "20 s")

    assert problems(queue) == []


def test_no_topic_is_reported_beside_it(queue: Queue) -> None:
    for topic in ("a", "b", "c"):
        queue.publish(topic, wait="-1 hour")
    start(queue, "w", "a", "b", "c")
    kill(queue, "w")

    queue.call("update_conditions")

    assert problems(queue) == [("workers_down", None)]
    assert [row.kind for row in queue.rows("SELECT kind FROM messages.conditions()")] == ["workers_down"]


def test_topics_that_were_reported_before_are_explained_by_it_and_not_resolved(queue: Queue) -> None:
    start(queue, "w", "a", "slow")
    queue.publish("orphan", wait="-1 hour")
    queue.publish("slow", wait="-1 hour")
    queue.call("update_conditions")
    kill(queue, "w")
    queue.call("update_conditions")

    def raised() -> list[tuple[str, str | None, str]]:
        return [tuple(row) for row in queue.rows("SELECT kind, topic, result FROM messages.alert ORDER BY id")]

    begun = [("backlog", "slow", "begun"), ("no_worker", "orphan", "begun"), ("workers_down", None, "begun")]
    assert raised() == begun
    assert problems(queue) == [("workers_down", None)]
    queue.call("purge_topic", "slow")
    start(queue, "new", "a")
    queue.call("update_conditions")
    assert problems(queue) == [("no_worker", "orphan")]
    assert sorted(raised()[3:], key=str) == [("backlog", "slow", "ended"), ("workers_down", None, "ended")]


def test_a_queue_that_never_had_a_worker_misses_none_until_messages_wait_for_a_minute(queue: Queue) -> None:
    assert problems(queue) == []
    queue.publish()
    assert problems(queue) == []

    queue.later("61 s")

    assert (down(queue).what, down(queue).since < queue.value("SELECT messages.now()")) == (
        "no worker is alive, and messages of t are ready",
        True,
    )


def test_workers_that_were_stopped_in_order_are_missed_only_while_something_waits(queue: Queue) -> None:
    start(queue, "w")
    queue.call("unregister_worker", "w")
    queue.publish(wait="1 hour")
    assert problems(queue) == []

    published = queue.publish(wait="-2 minutes")
    assert problems(queue) == [("workers_down", None)]
    queue.call("cancel", [published])

    assert problems(queue) == []


@pytest.mark.parametrize("what", ["paused", "breaker", "dead letters", "no threshold", "armed elsewhere", "delayed"])
def test_topics_that_need_no_worker_now_do_not_make_one_missed(queue: Queue, what: str) -> None:
    queue.publish(wait="1 hour" if what == "delayed" else "-1 hour")
    match what:
        case "dead letters":
            queue.policy("t", dead_letter=True)
            queue.settle("fail", queue.claim(), ["boom"])
            queue.later("1 hour")
        case "paused":
            queue.call("pause", "t")
        case "breaker":
            queue.policy("t", breaker={"pause": "10m"})
            queue.conn.execute(
                "INSERT INTO messages.breaker (topic, position, probe_at, reason) "
                "VALUES ('t', 'open', messages.now() + interval '10 minutes', 'x')"
            )
        case "no threshold":
            queue.conn.execute("INSERT INTO messages.alert_threshold (topic, no_worker_for) VALUES ('t', '0')")
        case "armed elsewhere":
            queue.call("arm", "shop", ["t"], "30 s")

    assert down(queue) is None


def test_a_worker_over_http_that_stopped_claiming_did_not_die(queue: Queue) -> None:
    queue.call("touch_http_worker", "http:shop/1", "host", ["t"], 1)
    assert problems(queue) == []

    kill(queue, "http:shop/1", "3 minutes")

    assert problems(queue) == []


def test_a_worker_over_http_is_alive_when_the_daemons_are_dead(queue: Queue) -> None:
    start(queue, "w")
    kill(queue, "w")
    queue.call("touch_http_worker", "http:shop/1", "host", ["t"], 1)

    assert problems(queue) == []


@pytest.mark.parametrize(
    ("least", "alive", "said"),
    [
        (3, 2, "only 2 of at least 3 workers are alive"),
        (3, 0, "no worker is alive, of at least 3"),
        (2, 2, None),
        (0, 0, None),
    ],
)
def test_a_number_of_workers_can_be_required(queue: Queue, least: int, alive: int, said: str | None) -> None:
    require(queue, least)
    for number in range(alive):
        start(queue, f"w{number}")
    if least == 0:
        queue.publish(wait="-1 hour")

    found = down(queue)

    assert (found and found.what) == said


def test_with_some_workers_left_topics_without_one_are_reported_too(queue: Queue) -> None:
    require(queue, 2)
    start(queue, "w")
    queue.publish("orphan", wait="-1 hour")

    queue.call("update_conditions")

    assert problems(queue) == [("workers_down", None), ("no_worker", "orphan")]


def test_of_many_dead_workers_the_latest_are_named(queue: Queue) -> None:
    for number in range(8):
        start(queue, f"w{number}")
        kill(queue, f"w{number}", f"{number + 1} minutes")

    what: str = down(queue).what

    assert [f"w{number} was" in what for number in range(8)] == [True] * 5 + [False] * 3
    assert what.endswith(", and 3 more are silent")


def test_dead_workers_are_remembered_until_another_one_lives(queue: Queue) -> None:
    start(queue, "w")
    kill(queue, "w", "2 hours")
    queue.call("prune")
    assert problems(queue) == [("workers_down", None)]

    start(queue, "new")
    queue.call("prune")

    assert [row.name for row in queue.rows("SELECT name FROM messages.worker")] == ["new"]


def test_a_worker_that_will_not_come_back_is_forgotten_by_hand(queue: Queue) -> None:
    start(queue, "w")
    kill(queue, "w")

    queue.call("unregister_worker", "w")

    assert problems(queue) == []


def test_the_alert_has_the_names_and_counts_what_waits_at_its_repetition(queue: Queue) -> None:
    start(queue, "w")
    queue.publish_many(7)
    kill(queue, "w")

    queue.call("update_conditions")
    queue.publish_many(2)
    queue.later("5 s")
    queue.call("update_conditions")

    alert = queue.row("SELECT kind, result, sample_error FROM messages.alert")
    assert (alert.kind, alert.result) == ("workers_down", "begun")
    assert alert.sample_error.startswith("no worker is alive: w was last seen at ")
    assert down(queue).count == 9


def test_the_doctor_says_the_same(queue: Queue) -> None:
    def workers() -> Row:
        return queue.row("SELECT level, what FROM messages.examine_workers() WHERE code = 'workers'")

    assert tuple(workers()) == ("warn", "no worker is alive")
    start(queue, "w")
    kill(queue, "w")

    assert tuple(workers()) == ("fail", down(queue).what)
    start(queue, "w")
    assert tuple(workers()) == ("ok", "1 alive")


def test_a_silenced_problem_is_left_out_and_comes_back_with_the_end_of_the_silence(queue: Queue) -> None:
    start(queue, "w")
    kill(queue, "w")
    number = queue.value("SELECT messages.silence('workers_down', p_for => '1 hour')")
    assert problems(queue) == []

    queue.call("unsilence", number)

    assert problems(queue) == [("workers_down", None)]


def test_names_of_topics_restrict_the_rest_and_not_this(queue: Queue) -> None:
    start(queue, "w", "a.one", "a.two", "b_1", "bx1")
    for topic in ("a.one", "a.two", "b_1", "bx1"):
        queue.publish(topic, wait="-1 hour")
    queue.call("update_conditions")
    require(queue, 2)

    def of(*topics: str) -> list[Any]:
        return [row.topic for row in queue.rows("SELECT * FROM messages.open_conditions(%s)", [list(topics)])]

    assert of("a.*", "b_1") == [None, "a.one", "a.two", "b_1"]
    assert of() == [None]


def test_in_the_first_seconds_of_the_server_nothing_is_reported(queue: Queue) -> None:
    start(queue, "w")
    kill(queue, "w")
    started = queue.value("SELECT pg_postmaster_start_time()")

    queue.stop_clock(str(started))
    assert problems(queue) == []
    queue.later("31 s")

    assert problems(queue) == [("workers_down", None)]
