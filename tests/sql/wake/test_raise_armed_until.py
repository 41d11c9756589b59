"""messages.raise_armed_until: publishes learn until when a worker may be armed, without reading a table."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.server.postgres import Database
from tests.sql.queue import Background, Queue


@pytest.fixture(autouse=True)
def unarmed(queue: Queue) -> None:
    queue.value("SELECT setval('messages.armed_until', 1)")


def raise_to(queue: Queue, until: int) -> None:
    queue.conn.execute("SELECT messages.raise_armed_until(to_timestamp(%s))", [until])


def armed(queue: Queue) -> int:
    return int(queue.value("SELECT pg_sequence_last_value('messages.armed_until')"))


def test_it_is_raised_at_once_also_for_sessions_that_cannot_see_the_flag_yet(queue: Queue, other: Queue) -> None:
    with queue.conn.transaction():
        raise_to(queue, 1000)

        assert armed(other) == 1000


def test_it_is_never_lowered(queue: Queue) -> None:
    raise_to(queue, 1000)

    raise_to(queue, 900)

    assert armed(queue) == 1000


def test_a_fraction_of_a_second_is_rounded_up(queue: Queue) -> None:
    queue.conn.execute("SELECT messages.raise_armed_until(to_timestamp(1000.001))")

    assert armed(queue) == 1001


def test_an_open_session_that_has_raised_it_blocks_no_other(queue: Queue, other: Queue) -> None:
    other.conn.execute("SET lock_timeout = '1ms'")
    with queue.conn.transaction(force_rollback=True):
        raise_to(queue, 1000)
        raise_to(other, 2000)
        raise_to(queue, 1500)

    assert armed(queue) == 2000


def test_two_concurrent_calls_run_one_after_the_other(
    queue: Queue, other: Queue, third: Queue, background: Background
) -> None:
    with queue.conn.transaction():
        queue.call("lock_mutex", "armed")
        second = background.start(raise_to, other, 2000)
        while not background.is_blocked(other):
            assert not second.done()
        third.value("SELECT setval('messages.armed_until', 3000)")  # as the first would

    second.result(timeout=60)
    assert armed(queue) == 3000


def test_many_concurrent_calls_never_undo_each_other(database: Database) -> None:
    queues = [Queue(database.connect()) for _ in range(8)]

    def raise_often(first: int) -> None:
        for until in range(first, 4000, 8):
            raise_to(queues[first], until)
            assert armed(queues[first]) >= until

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(raise_often, range(8)))


@pytest.mark.parametrize(
    "until",
    ["2026-01-01 00:00:00", "2026-01-01 00:00:00.000001", "2026-01-01 00:00:00.5", "2026-01-01 00:00:00.999999"],
)
def test_a_publish_never_takes_a_valid_flag_for_an_expired_one(queue: Queue, until: str) -> None:
    """As in the trigger new_message. At the end of the flag it still checks; a whole second later it does not."""
    queue.value("SELECT messages.raise_armed_until(%s)", [until])

    over = queue.row(
        """
        SELECT pg_sequence_last_value('messages.armed_until') < date_part('epoch', until) AS at_its_end,
               pg_sequence_last_value('messages.armed_until') < date_part('epoch',
                 until - interval '1 us') AS just_before,
               pg_sequence_last_value('messages.armed_until') < date_part('epoch',
                 until + interval '1.000001 s') AS later
        FROM (SELECT %s::timestamptz AS until) AS flag
        """,
        [until],
    )

    assert over == (False, False, True)
