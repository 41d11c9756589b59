"""Client: operations from Python, by the same SQL functions as everywhere."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.rows import namedtuple_row

from pgrouse import AsyncClient, Client, MessageNotFound, NewMessage
from pgrouse.client.call import run
from pgrouse.client.queries.schedule import find_schedules
from pgrouse.errors import DatabaseUnreachable, InvalidMessage, InvalidSetting, RequestRefused
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue

MINUTE = timedelta(minutes=1)


@pytest.fixture
def client(database: Database) -> Iterator[Client]:
    with Client(database.dsn) as client:
        yield client


def kill(queue: Queue, count: int = 1, topic: str = "t", error: str = "boom") -> list[int]:
    """Publish messages and let them fail."""
    published = queue.publish_many(count, topic)
    claimed = queue.claim(topic)
    queue.settle("fail", claimed, [error] * count)
    return published


# The connection


def test_a_client_closes_its_own_connection_and_not_that_of_the_caller(database: Database) -> None:
    theirs = database.connect()

    with Client(database.dsn) as own, Client(theirs):
        pass

    assert (own.conn.closed, theirs.closed) == (True, False)


def test_a_client_does_not_block_an_event_loop(database: Database) -> None:
    client = Client(database.dsn)

    async def block() -> None:
        said = r"Client would block the event loop that runs in this thread: use AsyncClient"
        with pytest.raises(RuntimeError, match=said):
            Client(database.dsn)
        with pytest.raises(RuntimeError, match=said):
            client.stats()
        for each in (client, Client(database.connect())):
            with pytest.raises(RuntimeError, match=r"Client.wait_for would block .*: use await AsyncClient.wait_for"):
                each.wait_for(1)

    asyncio.run(block())
    assert client.stats() == []
    client.close()


def test_calls_on_the_callers_connection_take_effect_at_its_commit(queue: Queue, database: Database) -> None:
    published = queue.publish()
    conn = database.connect(autocommit=False)

    Client(conn).cancel([published])
    conn.rollback()

    assert queue.message(published) is not None


def test_the_factories_of_the_callers_connection_have_no_effect(queue: Queue, database: Database) -> None:
    published = queue.publish()
    conn = database.connect(row_factory=namedtuple_row)

    assert Client(conn).message(published).state == "ready"


def test_a_coroutine_calls_it_in_a_thread(queue: Queue, client: Client) -> None:
    published = queue.publish()

    assert asyncio.run(asyncio.to_thread(client.cancel, [published])) == [published]


# Messages


def test_the_state_of_a_live_or_ended_message_is_returned(queue: Queue, client: Client) -> None:
    published = queue.publish(payload={"n": 1}, headers={"h": 2})
    live = client.message(published)
    queue.settle("complete", queue.claim(), ['{"done": true}'])
    ended = client.message(published)

    assert (live.state, live.payload, live.headers, live.output) == ("ready", {"n": 1}, {"h": 2}, None)
    assert (ended.state, ended.payload, ended.output) == ("success", {"n": 1}, {"done": True})


def test_an_unknown_message_is_an_error(client: Client) -> None:
    with pytest.raises(MessageNotFound, match="there is no message 4711"):
        client.message(4711)


def test_live_messages_are_cancelled_with_a_reason_and_ended_ones_are_not(queue: Queue, client: Client) -> None:
    first, second = queue.publish_many(2)
    client.cancel([first])

    cancelled = client.cancel([first, second], reason="ordered twice")

    assert cancelled == [second]
    assert queue.archived(second).error == "cancelled: ordered twice"


def test_a_waiting_message_is_explained(queue: Queue, client: Client) -> None:
    published = queue.publish(wait="1 hour")

    reasons = client.explain(published)

    rows = queue.rows("SELECT * FROM messages.explain(%s)", [published])
    assert [(each.code, each.reason, each.detail) for each in reasons] == [tuple(row) for row in rows]
    assert reasons[0].code


def test_a_client_waits_for_the_end_of_a_message(queue: Queue, client: Client, eventually: Callable[..., Any]) -> None:
    published = queue.publish()
    with ThreadPoolExecutor(1) as threads:
        waiter = threads.submit(client.wait_for, published, MINUTE)
        eventually(lambda: queue.rows("SELECT FROM messages.waiter"))

        queue.settle("reject", queue.claim(), ["no"])

        assert waiter.result(timeout=30).result == "rejected"


# Dead messages


def test_dead_messages_are_redriven_by_id_and_by_filter(queue: Queue, client: Client) -> None:
    first, second = kill(queue, 2)
    (other,) = kill(queue, 1, "u")

    by_id = client.redrive([first, first + 10_000], delay=MINUTE)
    by_filter = client.redrive_where(topic="u", rate=10.0, force=True)

    assert {row.archived_id: row.outcome for row in by_id} == {first: "redriven", first + 10_000: "not_dead"}
    assert [(row.archived_id, row.outcome) for row in by_filter] == [(other, "redriven")]
    assert [row.id for row in client.find_dead()] == [second]


# Topics


def test_a_policy_is_set_and_read(queue: Queue, client: Client) -> None:
    changed = client.set_policy("t", max_attempts=5, lock_duration=MINUTE)

    assert len(changed) == 2
    assert client.set_policy("t", max_attempts=5) == []
    policy = client.policy("t")
    assert (policy["max_attempts"], policy["lock_duration"], policy["archive_success"]) == (5, MINUTE, "full")
    assert client.policy()["max_attempts"] == 1


@pytest.mark.parametrize("settings", [{"max_attempt": 5}, {"max_attempts": -1}, {"archive_success": "some"}])
def test_an_unknown_setting_or_an_invalid_value_is_refused_by_name(client: Client, settings: dict[str, Any]) -> None:
    (setting,) = settings

    with pytest.raises(InvalidSetting, match=setting):
        client.set_policy("t", **settings)


def test_a_topic_and_a_channel_are_paused_and_resumed(queue: Queue, client: Client) -> None:
    queue.publish("t")
    queue.publish("u", channel="c")

    without_end = client.pause("t", reason="the relay is down")
    for_a_while = client.pause("u", channel="c", resume_in="1m")
    claimed = queue.claim("t", "u")
    resumed = [client.resume("t"), client.resume("t"), client.resume("u", channel="c")]

    assert without_end is None
    assert for_a_while is not None
    assert for_a_while > datetime.now(UTC)
    assert claimed == []
    assert resumed == [True, False, True]
    assert len(queue.claim("t", "u")) == 2


# Schedules


def test_no_pattern_of_topics_fits_no_schedule(queue: Queue) -> None:
    queue.schedule("nightly")

    found = [run(queue.conn, find_schedules(topics=topics)) for topics in ((), ["*"], None)]

    assert [len(each) for each in found] == [0, 1, 1]


def test_a_policy_is_removed_a_subscription_added_and_a_threshold_set(queue: Queue, client: Client) -> None:
    client.set_policy("mail", max_attempts=7, max_depth=1)
    queue.publish("mail")

    (state,) = client.topic_state(["mail"])
    assert (state.state, state.full, state.depth) == ("unhandled", True, 1)
    assert [client.remove_policy("mail"), client.remove_policy("mail"), client.remove_policy("*")] == [
        *(True, False, False),
    ]
    assert client.policy("mail") == client.policy()
    assert [client.add_subscription("mail", "copies") for _ in range(2)] == [True, False]
    assert [(each.topic, each.subscriber) for each in client.subscriptions("copies")] == [("mail", "copies")]
    assert [client.remove_subscription("mail", "copies") for _ in range(2)] == [True, False]
    client.set_thresholds("mail", backlog_age="2h", dead_per_hour=3)
    client.set_thresholds(cron_age=timedelta(minutes=7))
    client.set_thresholds("mail", backlog_age=None)
    defaults, own = client.thresholds()
    assert (defaults.topic, defaults.cron_age, own.backlog_age, own.dead_per_hour) == (
        *("*", timedelta(minutes=7), None, 3),
    )


@pytest.mark.parametrize("given", [{}, {"backlog": 1}])
def test_a_threshold_that_there_is_not_is_an_error(client: Client, given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="give some of backlog_age"):
        client.set_thresholds("mail", **given)


def test_a_schedule_is_added_run_paused_resumed_and_removed(queue: Queue, client: Client) -> None:
    began = datetime.now(UTC)
    client.add_schedule("nightly", "0 2 * * *", "report", {"of": "today"}, time_zone="Europe/Berlin", headers={"h": 1})
    (schedule,) = client.schedules()
    changed = [client.change_schedule("nightly", headers={"h": 2}), client.change_schedule("unknown", key="k")]
    published = client.run_schedule("nightly")
    paused = [client.pause_schedule("nightly", reason="holidays"), client.pause_schedule("nightly")]
    resumed = [client.resume_schedule("nightly"), client.resume_schedule("nightly")]
    removed = [client.remove_schedule("nightly"), client.remove_schedule("nightly")]

    assert (schedule.name, schedule.topic, schedule.time_zone) == ("nightly", "report", "Europe/Berlin")
    assert changed == [True, False]
    for wrong in ({}, {"when": "@daily"}, {"topic": None}):
        with pytest.raises(ValueError, match="schedule"):
            client.change_schedule("nightly", **wrong)
    assert schedule.next_tick > began
    assert published.outcome == "published"
    assert queue.message(published.id).payload == {"of": "today"}
    assert (paused, resumed, removed) == ([True, False], [True, False], [True, False])
    assert client.schedules() == []


def test_the_messages_of_a_schedule_have_settings_instead_of_their_topics(queue: Queue, client: Client) -> None:
    client.add_schedule("own", "@daily", "report", max_attempts=3, timeout="30s", backoff="linear", retention="90d")
    (added,) = client.schedules()
    client.change_schedule("own", timeout=None, backoff={"kind": "constant", "base": "1m"})

    message = queue.message(client.run_schedule("own").id or 0)

    assert (added.max_attempts, added.timeout, added.retention) == (3, timedelta(seconds=30), timedelta(days=90))
    assert added.backoff["kind"] == "linear"
    assert (message.max_attempts, message.timeout) == (3, None)
    assert message.backoff == {"kind": "constant", "base": "1m"}
    with pytest.raises(InvalidMessage, match="retention"):
        client.change_schedule("own", retention="1s")


def test_the_last_and_the_next_runs_of_a_schedule_are_known(queue: Queue, client: Client) -> None:
    queue.stop_clock("2026-11-16 09:00:00+00")
    queue.schedule("s", "@hourly", missed="all")
    queue.later("2 hours")
    queue.call("fire_schedules")

    latest, first = client.schedule_runs("s")
    (schedule,) = client.schedules()

    assert [(each.tick.hour, each.outcome, each.message_id) for each in (first, latest)] == [
        (10, "published", queue.ids()[0]),
        (11, "published", queue.ids()[1]),
    ]
    assert client.schedule_runs("s", limit=1) == [latest]
    assert (schedule.last_tick, schedule.next_tick.hour) == (latest.tick, 12)
    assert client.schedule_runs("unknown") == []


def test_a_refusal_of_the_server_is_an_error_of_its_own(client: Client) -> None:
    with pytest.raises(RequestRefused, match="cron") as refused:
        client.add_schedule("nightly", "61 2 * * *", "report")

    assert refused.value.sqlstate == "22023"
    assert isinstance(refused.value.__cause__, psycopg.errors.InvalidParameterValue)


def test_a_misspelt_setting_names_the_nearest(client: Client) -> None:
    with pytest.raises(InvalidSetting, match="max_atempts: there is no such setting; did you mean 'max_attempts'"):
        client.set_policy("t", max_atempts=3)


def test_a_server_that_cannot_be_reached_is_an_error_of_its_own() -> None:
    with pytest.raises(DatabaseUnreachable):
        Client("host=127.0.0.1 port=1")
    with pytest.raises(DatabaseUnreachable):
        asyncio.run(_enter(AsyncClient("host=127.0.0.1 port=1")))


async def _enter(client: AsyncClient) -> None:
    async with client:
        pass


# Publishing, and coroutines


def test_a_client_publishes_on_its_own_connection_or_in_the_callers_transaction(
    client: Client, database: Database, queue: Queue
) -> None:
    published = client.publish("t", 1, key="k")
    many = client.publish_many([NewMessage(topic="t", payload=n) for n in (2, 3)])
    with psycopg.connect(database.dsn) as conn:
        Client(conn).publish("t", 4)
        conn.rollback()

    assert (published.outcome, many) == ("inserted", 2)
    assert [row.payload for row in queue.rows("SELECT payload FROM messages.message ORDER BY id")] == [1, 2, 3]


def test_both_clients_publish_with_debounce_and_throttle(client: Client, database: Database, queue: Queue) -> None:
    async def main(debounced: int, throttled: int) -> None:
        async with AsyncClient(database.dsn) as awaited:
            moved = await awaited.publish("t", 2, key="d", debounce="2h", max_delay=timedelta(hours=5))
            ignored = await awaited.publish("t", 2, key="t", throttle=3600)
        assert [(moved, moved.outcome), (ignored, ignored.outcome)] == [(debounced, "replaced"), (throttled, "ignored")]

    debounced = client.publish("t", 1, key="d", debounce="1h", max_delay="5h")
    throttled = client.publish("t", 1, key="t", throttle=timedelta(hours=1))

    asyncio.run(main(debounced, throttled))

    assert (queue.message(debounced).payload, queue.message(throttled).payload) == (2, 1)
    assert client.explain(debounced)[0].code == "debounced"


def test_a_coroutine_awaits_the_same_methods(database: Database, queue: Queue) -> None:
    async def main() -> Any:
        async with AsyncClient(database.dsn) as client:
            published = await client.publish("t", 1)
            await client.set_policy("t", max_attempts=3)
            ending = asyncio.create_task(client.wait_for(published, MINUTE))
            reasons, policy = await asyncio.gather(client.explain(published), client.policy("t"))
            await client.cancel([published])
            return reasons[0].code, policy["max_attempts"], (await ending).result

    assert asyncio.run(main()) == ("unhandled", 3, "cancelled")


def test_a_cancelled_call_is_cancelled_on_the_server_and_the_next_one_works(database: Database) -> None:
    async def main() -> Any:
        async with AsyncClient(database.dsn) as client:
            with database.connect() as other:
                other.autocommit = False
                published = await client.publish("t")
                other.execute("SELECT FROM messages.message FOR UPDATE")
                stuck = asyncio.create_task(client.cancel([published]))
                waits = (
                    "SELECT count(*) FROM pg_stat_activity "
                    "WHERE wait_event_type = 'Lock' AND datname = current_database()"
                )
                watcher = database.connect()
                await asyncio.to_thread(eventually, lambda: watcher.execute(waits).fetchone() == (1,))
                stuck.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await stuck
                stats = await client.stats()
                other.rollback()
            return [row.topic for row in stats]

    assert asyncio.run(main()) == ["t"]


def test_a_late_cancellation_affects_no_other_call(database: Database, queue: Queue) -> None:
    first, second = queue.publish_many(2)
    threads, busy, let_go = ThreadPoolExecutor(1), ThreadPoolExecutor(1), threading.Event()

    async def main() -> tuple[bool, Any]:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(busy)

        def seen(condition: Callable[[], Any]) -> Awaitable[Any]:
            return loop.run_in_executor(threads, eventually, condition)

        def is_stuck() -> bool:
            waits = (
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            )
            return bool(queue.value(waits) == 1)

        async with AsyncClient(database.dsn) as client:
            with database.connect() as one, database.connect() as two:
                for conn, locked in ((one, first), (two, second)):
                    conn.autocommit = False
                    conn.execute("SELECT FROM messages.message WHERE id = %s FOR UPDATE", [locked])
                calls = [asyncio.create_task(client.cancel([each])) for each in (first, second)]
                await seen(is_stuck)
                busy.submit(let_go.wait)  # the sender of the cancellation waits for a thread
                calls[0].cancel()
                for _ in range(5):
                    await asyncio.sleep(0)
                one.rollback()
                await seen(lambda: queue.archived(first))
                await seen(is_stuck)
                let_go.set()
                ended = await asyncio.wait(calls[:1])
                two.rollback()
                return ended[0].pop().cancelled(), await calls[1]

    try:
        assert asyncio.run(main()) == (True, [second])
    finally:
        let_go.set()


def test_an_async_client_has_the_methods_of_a_client_and_no_other() -> None:
    blocking, awaited = ({name for name in vars(each) if not name.startswith("_")} for each in (Client, AsyncClient))

    # It closes itself.
    assert awaited == blocking - {"close"}
    assert all(inspect.iscoroutinefunction(getattr(AsyncClient, name)) for name in awaited)


def test_a_method_that_makes_a_call_has_the_name_and_the_arguments_of_its_function() -> None:
    for name, method in vars(Client).items():
        if hasattr(method, "__wrapped__") and not name.startswith("_"):
            assert method.__wrapped__.__name__ == name
            assert inspect.signature(getattr(AsyncClient, name)) == inspect.signature(method.__wrapped__)


def test_waiting_messages_are_deleted_one_by_one_or_by_topic(queue: Queue, client: Client) -> None:
    first, second, third, fourth = queue.publish_many(4)

    assert client.delete([first, 2**62]) == [first]
    assert client.purge_topic("t", upto=third) == len([second, third])
    assert queue.ids() == [fourth]


def test_a_waiting_message_is_edited_and_a_dead_one_is_redriven_with_another_payload(
    queue: Queue, client: Client
) -> None:
    waiting, (dead,) = queue.publish("u", payload={"n": 1}), kill(queue)

    edited = [client.edit(waiting, payload={"n": 2}, headers={"h": 1}), client.edit(dead, payload={})]
    redriven = client.redrive_edited(dead, payload={"n": 3}, topic="u")

    assert edited == ["edited", "ended"]
    assert (client.message(waiting).payload, client.message(waiting).headers) == ({"n": 2}, {"h": 1})
    assert redriven.outcome == "redriven"
    assert redriven.message_id is not None
    assert client.message(redriven.message_id).topic == "u"


def test_messages_are_found_page_by_page(queue: Queue, client: Client) -> None:
    published = queue.publish_many(3)

    page = client.find_messages("t", states=["ready"], limit=2)
    last = client.find_messages("t", states=["ready"], limit=2, after=page.place)

    assert [each.id for each in [*page.messages, *last.messages]] == published
    assert (last.place, last.examined) == (None, 1)


@pytest.mark.parametrize("ids", ["12", 12, [1.5]])
def test_an_invalid_list_of_ids_is_refused(client: Client, ids: Any) -> None:
    with pytest.raises(TypeError):
        client.cancel(ids)


def test_an_id_out_of_range_is_an_error_of_the_server(client: Client) -> None:
    with pytest.raises(RequestRefused):
        client.cancel([2**70])
