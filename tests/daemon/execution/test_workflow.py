"""Messages that depend on others, processed by real daemons."""

from __future__ import annotations

from collections.abc import Callable

from tests.daemon.process import Daemon, Journal
from tests.server.deadline import eventually
from tests.sql.queue import Queue

Start = Callable[..., Daemon]
TOPICS = {"job": "work:echo"}


def after(queue: Queue, *before: int, topic: str = "job") -> int:
    published: int = queue.send(topic=topic, after=list(before)).id
    return published


def test_diamonds_run_in_order_over_two_daemons_that_sleep_for_long(
    start: Start, queue: Queue, journal: Journal
) -> None:
    """Both would poll in an hour and tick as rarely: messages that are released in time were notified."""
    for name in ("one", "two"):
        start(TOPICS, name=name, maintenance_interval="1h", poll_interval="1h")
    with queue.conn.transaction():
        diamonds = []
        for _ in range(10):
            top = queue.publish("job")
            left, right = after(queue, top), after(queue, top)
            diamonds.append((top, left, right, after(queue, left, right)))

    ids = [each for diamond in diamonds for each in diamond]
    eventually(lambda: all(queue.archived(each) for each in ids))

    assert {queue.archived(each).result for each in ids} == {"success"}
    for top, left, right, bottom in diamonds:
        at = {entry["id"]: entry["at"] for entry in journal.entries() if entry.get("id") in (top, left, right, bottom)}
        assert at[top] < min(at[left], at[right])
        assert max(at[left], at[right]) < at[bottom]


def test_a_dead_message_that_is_redriven_releases_its_dependents(start: Start, queue: Queue) -> None:
    start({"job": "work:echo", "bad": "work:fail_until_gate"}).open_gate("unused")
    first = queue.publish("bad", payload='{"do": "fail"}')
    last = after(queue, first)
    eventually(lambda: queue.archived(first))
    held = queue.message(last).available_at.year

    again = queue.row("SELECT * FROM messages.redrive_edited(%s, p_topic => 'job')", [first]).message_id

    assert held == 9000
    assert eventually(lambda: queue.archived(again)).result == "success"
    assert eventually(lambda: queue.archived(last)).result == "success"


def test_handlers_get_the_results_of_the_messages_before_theirs(start: Start, queue: Queue) -> None:
    joins = {
        "join": "work:join",
        "join.thread": "work:join_in_thread",
        "join.transaction": "work:join_in_a_transaction",
    }
    start({**TOPICS, **joins, "bad": "work:act"})
    one, two, bad = (
        queue.publish("job", payload='"one"'),
        queue.publish("job", payload='"two"'),
        queue.publish("bad", payload='{"do": "fail"}'),
    )
    last = [queue.send(topic=topic, after=[two, bad, one], after_failed="run").id for topic in joins]
    alone = queue.publish("join")

    outputs = [eventually(lambda each=each: queue.archived(each)).output for each in last]

    error = queue.archived(bad).error
    expected = [
        [two, "job", "two", None, None, True],
        [bad, "bad", None, error, None, False],
        [one, "job", "one", None, None, True],
    ]
    assert outputs == [expected] * 3
    assert eventually(lambda: queue.archived(alone)).output == []
