"""messages.now: the clock of the queue."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from tests.server.postgres import Database
from tests.sql.queue import Queue

FAKE = datetime(2031, 2, 3, 4, 5, 6, tzinfo=UTC)


@pytest.fixture
def member(database: Database) -> Iterator[Queue]:
    """A connection of a user that is only a worker."""
    conn = database.connect()
    conn.execute("CREATE ROLE test_member IN ROLE messages_worker")
    conn.execute("SET SESSION AUTHORIZATION test_member")
    yield Queue(conn)
    conn.execute("RESET SESSION AUTHORIZATION")
    conn.execute("DROP ROLE test_member")


def test_it_is_the_servers_clock(queue: Queue) -> None:
    before, now, after = queue.row("SELECT clock_timestamp() AS a, messages.now() AS b, clock_timestamp() AS c")

    assert before <= now <= after


def test_it_advances_within_a_transaction(queue: Queue) -> None:
    with queue.conn.transaction():
        assert queue.call("now") < queue.call("now")


def test_the_owner_may_stop_it_for_a_test(queue: Queue) -> None:
    queue.conn.execute("SELECT set_config('messages.fake_now', %s, false)", [FAKE.isoformat()])

    assert queue.call("now") == queue.call("now") == FAKE


@pytest.mark.parametrize("unset", ["SET messages.fake_now = ''", "RESET messages.fake_now"])
def test_without_the_setting_it_advances_again(queue: Queue, unset: str) -> None:
    queue.later("-10 years")

    queue.conn.execute(unset.encode())

    assert queue.value("SELECT messages.now() > clock_timestamp() - interval '1 minute'") is True


def test_a_worker_cannot_change_it(member: Queue) -> None:
    member.conn.execute("SELECT set_config('messages.fake_now', %s, false)", [FAKE.isoformat()])

    assert abs(member.call("now") - datetime.now(UTC)) < timedelta(minutes=1)


def test_a_worker_cannot_expire_the_locks_of_others_with_its_own_clock(queue: Queue, member: Queue) -> None:
    published = queue.publish()
    queue.claim()
    member.conn.execute("SELECT set_config('messages.fake_now', %s, false)", [FAKE.isoformat()])

    member.rows("SELECT * FROM messages.tick('daemon')")

    assert queue.message(published).locked_by == "w"


def test_a_worker_cannot_set_an_invalid_clock(member: Queue) -> None:
    member.conn.execute("SET messages.fake_now = 'soon'")

    assert member.call("now") is not None
