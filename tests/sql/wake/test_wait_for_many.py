"""messages.wait_for_many: clients learn of the ends of many messages at once.

Its clients: test_waiter.py, test_wait_for.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from psycopg import errors

from tests.server.postgres import Database
from tests.sql.queue import Background, Listener, Queue, Row
from tests.sql.wake.test_wait_for import ENDS, Session, orders, play


@pytest.fixture
def shop(queue: Queue, database: Database) -> Iterator[Queue]:
    """A session that logged in as a publisher and may do nothing else."""
    queue.conn.execute("CREATE ROLE result_shop LOGIN IN ROLE messages_publisher")
    own = Queue(database.connect())
    own.conn.execute("SET SESSION AUTHORIZATION result_shop")
    yield own
    own.conn.close()
    queue.conn.execute("DROP ROLE result_shop")


def ask(queue: Queue, *ids: int, time: str | None = "1 minute") -> dict[int, Row]:
    rows = queue.rows("SELECT * FROM messages.wait_for_many(%s::bigint[], %s)", [list(ids), time])
    assert [row.id for row in rows] == sorted(set(ids))
    return {row.id: row for row in rows}


def states(queue: Queue, *ids: int, time: str | None = "1 minute") -> list[str]:
    found = ask(queue, *ids, time=time)
    return [found[each].state for each in ids]


def waiters(queue: Queue) -> list[int]:
    return [row.message_id for row in queue.rows("SELECT message_id FROM messages.waiter ORDER BY message_id")]


def test_each_message_has_its_state_and_those_that_have_ended_their_results(queue: Queue) -> None:
    done, dead, lives = queue.publish_many(3)
    claimed = queue.claim(limit=2)
    queue.settle("complete", claimed[:1], ['{"n": 1}'])
    queue.settle("fail", claimed[1:], ["boom"])

    found = ask(queue, lives, done, dead, 4711)

    assert tuple(found[done])[1:6] == ("ended", "success", '{"n": 1}', None, 1)
    assert found[done].archived_at == queue.archived(done).archived_at
    assert tuple(found[dead])[1:6] == ("ended", "failed", None, "boom", 1)
    assert tuple(found[lives])[1:] == ("waiting", *(None,) * 5)
    assert tuple(found[4711])[1:] == ("missing", *(None,) * 5)
    assert waiters(queue) == [lives]


def test_the_ends_of_all_that_wait_are_notified(queue: Queue, listen: Callable[..., Listener]) -> None:
    published = queue.publish_many(3)
    listener = listen("settled")

    ask(queue, *published)
    queue.settle("complete", queue.claim())

    assert sorted(listener.received()) == sorted(map(str, published))


def test_without_a_time_it_only_looks(queue: Queue) -> None:
    published = queue.publish()

    assert states(queue, published, time=None) == ["ending"]
    assert waiters(queue) == []


@pytest.mark.parametrize("claims_itself", [False, True])
def test_it_waits_for_no_transaction_that_ends_a_message(queue: Queue, database: Database, claims_itself: bool) -> None:
    before, ends, after = queue.publish("before"), queue.publish("ends"), queue.publish("after")
    ending = Queue(database.connect())
    claimed = [] if claims_itself else queue.claim("ends")
    with ending.conn.transaction():
        ending.settle("complete", claimed or ending.claim("ends"))

        assert states(queue, before, ends, after) == ["waiting", "ending", "waiting"]
    assert states(queue, before, ends, after) == ["waiting", "ended", "waiting"]


@pytest.mark.parametrize("time", ["0 s", "61 minutes"])
def test_an_invalid_time_is_refused(queue: Queue, time: str) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="wait_for_many was called with 1 messages and p_for = "):
        ask(queue, 1, time=time)


def test_too_many_messages_are_refused(queue: Queue) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="10001 messages"):
        ask(queue, *range(1, 10_002))


def test_a_publisher_learns_only_of_what_it_published_for_that(queue: Queue, shop: Queue) -> None:
    own = shop.send(expect_result=True).id
    plain, other = shop.send().id, queue.send(expect_result=True).id

    assert states(shop, own, plain, other, 4711) == ["waiting", "forbidden", "forbidden", "forbidden"]
    queue.settle("complete", queue.claim(), ["1"] * 3)

    found = ask(shop, own, plain, other, 4711)
    assert (found[own].state, found[own].output) == ("ended", "1")
    assert {tuple(found[each])[1:] for each in (plain, other, 4711)} == {("forbidden", *(None,) * 5)}
    assert set(states(queue, own, plain, other)) == {"ended"}


def test_a_publisher_learns_nothing_of_a_message_that_it_did_not_change(queue: Queue, shop: Queue) -> None:
    waits = queue.send(key="k").id
    ignored = shop.send(key="k", on_conflict="ignore", expect_result=True)

    assert (ignored.id, ignored.outcome) == (waits, "ignored")
    assert states(shop, waits) == ["forbidden"]
    shop.send(key="k", on_conflict="replace", expect_result=True)
    assert states(shop, waits) == ["waiting"]


def test_a_publisher_learns_no_output_of_a_message_to_which_it_only_appended(queue: Queue, shop: Queue) -> None:
    waits = queue.send(key="k", payload='{"secret": 1}').id
    for _ in range(2):
        appended = shop.send(key="k", payload="[2]", on_conflict="append", expect_result=True)
        assert (appended.id, appended.outcome) == (waits, "appended")

    assert states(shop, waits) == ["forbidden"]
    queue.settle("complete", queue.claim(), ['{"echo": 1}'])
    assert states(shop, waits) == ["forbidden"]


def test_a_publisher_learns_the_end_of_a_message_to_which_only_it_appended(shop: Queue) -> None:
    first = shop.send(key="k", payload="1", expect_result=True).id
    appended = shop.send(key="k", payload="2", on_conflict="append", expect_result=True)

    assert (appended.id, appended.outcome) == (first, "appended")
    assert states(shop, first) == ["waiting"]


@pytest.mark.parametrize("on_conflict", ["append", "replace"])
def test_a_publisher_learns_nothing_of_what_another_role_put_into_its_message(
    queue: Queue, shop: Queue, on_conflict: str
) -> None:
    own = shop.send(key="k", payload="1", expect_result=True).id

    queue.send(key="k", payload='{"secret": 1}', on_conflict=on_conflict)
    again = shop.send(key="k", payload="1", on_conflict="append", expect_result=True)

    assert again.id == own
    assert states(shop, own) == ["forbidden"]


def test_a_publisher_learns_nothing_of_what_a_fan_out_put_into_its_message(queue: Queue, shop: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.subscription (topic, subscriber) VALUES ('source', 't')")
    own = shop.send(key="k", payload="1", expect_result=True).id

    queue.send(topic="source", key="k", payload='{"secret": 1}', on_conflict="replace")

    assert states(shop, own) == ["forbidden"]


def test_a_role_that_may_read_outputs_in_the_archive_may_wait_for_all(queue: Queue, shop: Queue) -> None:
    published = queue.publish()
    queue.conn.execute("GRANT SELECT (output) ON messages.message_archive TO result_shop")

    assert states(shop, published) == ["waiting"]
    queue.conn.execute("REVOKE SELECT (output) ON messages.message_archive FROM result_shop")


def test_a_right_to_a_result_ends_after_a_day_without_use(queue: Queue, shop: Queue) -> None:
    used, unused = (shop.send(expect_result=True).id for _ in range(2))
    queue.conn.execute("UPDATE messages.expected_result SET until = until - interval '20 hours'")

    states(shop, used)
    queue.conn.execute("UPDATE messages.expected_result SET until = until - interval '5 hours'")
    queue.call("prune")

    assert states(shop, used, unused) == ["waiting", "forbidden"]


@pytest.mark.parametrize("how", ["cancel", pytest.param("complete", marks=pytest.mark.long)])
def test_in_every_order_of_their_steps_no_end_is_missed(
    database: Database,
    queue: Queue,
    background: Background,
    eventually: Callable[..., Any],
    listen: Callable[..., Listener],
    how: str,
) -> None:
    """As the test of wait_for: a waiter gets the result, or a notification, or is to ask again."""
    waiting, ending = Queue(database.connect()), Queue(database.connect())
    listener = listen("settled")
    missed, answers = [], set()

    for order in orders(3, 4):
        queue.conn.execute("DELETE FROM messages.waiter; SELECT setval('messages.awaited_flag', 1)")
        published = queue.publish()
        claimed = queue.claim()
        waiter = Session(waiting, background, lambda q, id_=published: ask(q, id_)[id_].state)
        end = Session(ending, background, lambda q: q.call("prune"), partial(ENDS[how], claimed=claimed))
        play({"w": waiter, "e": end}, order, eventually)
        state, received = waiter.taken[1].result(), listener.received()
        answers.add(state)
        if state == "waiting" and str(published) not in received:
            missed.append(order)

    assert (missed, answers) == ([], {"ended", "ending", "waiting"})
