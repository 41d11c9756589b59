"""Topics and channels are paused and resumed while daemons run.

All daemons comply at once, and running messages may end.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from tests.daemon.endpoint import ANY_PORT, Endpoint
from tests.daemon.process import AT_ONCE_S, Daemon, Journal, is_armed, now
from tests.server.deadline import eventually
from tests.sql.queue import Queue

Start = Callable[..., Daemon]


@pytest.fixture
def daemons(start: Start) -> list[Daemon]:
    """Two daemons with the same topics, asleep."""
    topics = {"job": "work:echo", "held": "holding:hold", "other": "work:echo"}
    return [start(topics, sections=ANY_PORT) for _ in range(2)]


# No claim loop has sent anything for half a second: they claim again and again while they fall asleep.
QUIET = """
    SELECT count(*) > 0 AND bool_and(state = 'idle' AND clock_timestamp() - state_change > interval '0.5 s')
    FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE '%%claim-%%'
"""


def asleep(queue: Queue, daemons: list[Daemon]) -> bool:
    return all(is_armed(queue.conn, each) for each in daemons) and bool(queue.value(QUIET))


@pytest.mark.every_server
def test_no_daemon_starts_a_message_of_a_paused_topic_until_it_is_resumed(
    daemons: list[Daemon], queue: Queue, journal: Journal
) -> None:
    def both_work() -> bool:
        queue.publish_many(10, "job")
        return len({e["pid"] for e in journal.entries("start")}) == 2

    eventually(both_work)
    queue.call("pause", "job", "a test")
    # A claim that was under way may get some of these.
    during = [queue.publish("job") for _ in range(150)]
    eventually(lambda: asleep(queue, daemons))
    waiting = [queue.publish("job") for _ in range(50)]
    other = queue.publish("other")

    journal.entry("start", other)
    eventually(lambda: asleep(queue, daemons))
    before = {e["id"] for e in journal.entries("start")}
    assert before.isdisjoint(waiting)
    assert queue.value("SELECT count(*) FROM messages.message WHERE claim_id IS NOT NULL") == 0
    assert queue.rows("SELECT * FROM messages.explain(%s)", [waiting[-1]])[0].code == "paused"

    queue.call("resume", "job")
    resumed_at = now()

    first = eventually(lambda: [e for e in journal.entries("start") if e["id"] in {*during, *waiting} - before])[0]
    assert first["at"] - resumed_at < AT_ONCE_S
    eventually(lambda: queue.ids() == [])


def test_a_running_message_may_end_when_its_topic_is_paused(
    daemons: list[Daemon], queue: Queue, journal: Journal
) -> None:
    running = queue.publish("held")
    journal.entry("start", running)

    queue.call("pause", "held")
    waiting = queue.publish("held")
    for daemon in daemons:
        daemon.open_gate()

    eventually(lambda: queue.archived(running))
    assert queue.archived(running).result == "success"
    assert queue.message(waiting).attempts == 0


def test_a_paused_channel_delays_no_other(daemons: list[Daemon], queue: Queue, journal: Journal) -> None:
    queue.call("pause", "job", channel="loud")
    held = queue.publish("job", channel="loud")

    journal.entry("start", queue.publish("job", channel="quiet"))
    journal.entry("start", queue.publish("job"))
    eventually(lambda: asleep(queue, daemons))
    assert queue.message(held).attempts == 0
    queue.call("resume", "job", "loud")
    resumed_at = now()

    assert journal.entry("start", held)["at"] - resumed_at < AT_ONCE_S


@pytest.mark.parametrize("channel", [None, "c"])
def test_a_pause_with_an_end_expires_while_all_daemons_sleep(
    daemons: list[Daemon], queue: Queue, journal: Journal, channel: str | None
) -> None:
    begun = now()
    queue.call("pause", "job", resume_in=timedelta(seconds=3), channel=channel)
    held = queue.publish("job", channel=channel)
    eventually(lambda: asleep(queue, daemons))

    late = journal.entry("start", held)["at"] - begun - 3

    assert -0.1 < late < AT_ONCE_S


@pytest.mark.long
def test_a_pause_that_is_removed_in_the_table_is_notified(
    daemons: list[Daemon], queue: Queue, journal: Journal
) -> None:
    for _ in range(5):
        queue.call("pause", "job")
        held = queue.publish("job")
        eventually(lambda: asleep(queue, daemons))
        queue.conn.execute("UPDATE messages.topic SET paused_at = NULL WHERE topic = 'job'")
        journal.entry("start", held)
        eventually(lambda: queue.ids() == [])

    # While messages are held back daemons claim each second, too; on a busy machine that may be first: but not each
    # time.
    notified = sum(Endpoint(each).value("pgrouse_claimed_messages_total", source="notify") for each in daemons)
    assert notified >= 1


def test_a_raised_limit_wakes_sleeping_daemons(daemons: list[Daemon], queue: Queue, journal: Journal) -> None:
    queue.policy("held", max_concurrency=1)
    first, second = queue.publish("held"), queue.publish("held")
    journal.entry("start", first)
    eventually(lambda: asleep(queue, daemons))
    assert queue.rows("SELECT * FROM messages.explain(%s)", [second])[0].code == "topic_full"

    queue.policy("held", max_concurrency=2)
    lifted_at = now()

    assert journal.entry("start", second)["at"] - lifted_at < AT_ONCE_S
