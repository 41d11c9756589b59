"""`pgrouse top` on a real database: what it shows, what its keys do, and what happens during an outage."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from psycopg import sql
from psycopg.types.json import Jsonb

from pgrouse.cli.top import action, snapshot
from pgrouse.cli.top.snapshot import SnapshotReader
from tests.cli.stage import die, start
from tests.server.postgres import Database, Postgres
from tests.sql.queue import Queue
from tests.top.view import View, watch


def test_topics_are_shown_with_their_counts_and_their_handlers(database: Database, queue: Queue) -> None:
    queue.publish_many(3, "orders")
    queue.publish("orders", wait="1 hour")
    queue.claim("orders", limit=1)
    start(queue, "w1", "orders", "quiet")
    # Buckets 20 and 14 end at 102 ms and 13 ms.
    measured = {"topic": "orders", "success": 600, "waits": {"20": 600}, "runs": {"14": 600}}
    queue.call("record_measures", "w1", 1, Jsonb([measured]))
    queue.publish("lonely")
    queue.call("pause", "shut", "the relay is down")
    die(queue, "mails", "mails")

    async def check(view: View) -> None:
        # topic, ready, running, dead, oldest, rate, wait, run, state
        orders = await view.row("orders")
        assert (orders[1:4], orders[6:]) == (["2", "1", "0"], ["101ms", "13ms", "running"])
        assert 100 <= float(orders[5]) <= 121
        assert (await view.row("quiet"))[1:] == ["0", "0", "0", "-", "-", "-", "-", "running"]
        assert (await view.row("lonely"))[-1] == "unhandled"
        assert (await view.row("shut"))[-1] == "paused"
        assert (await view.row("mails"))[3] == "2"

    watch(database.dsn, check)


def test_workers_are_shown_with_their_messages_and_their_listeners(database: Database, queue: Queue) -> None:
    start(queue, "w1", "orders", "mails")
    queue.conn.execute('UPDATE messages.worker SET status = \'{"listener": "degraded"}\'')
    queue.publish_many(2, "orders")
    queue.publish("mails")
    queue.policy("mails", worker_concurrency=3)
    queue.claim("orders", "mails", worker="w1/0")

    async def check(view: View) -> None:
        row = await view.row("w1", "working")
        assert row[3:] == ["degraded", "orders", "2,", "mails", "1", "of", "3"]

    watch(database.dsn, check)


def test_dead_messages_are_grouped_with_trend_and_sample_and_without_control_characters(
    database: Database, queue: Queue
) -> None:
    for _ in range(2):
        die(queue, "mails", age="3 hours", error="relay \x1b[31m is down")
    (last,) = die(queue, "mails", error="relay \x1b[31m is down")

    async def check(view: View) -> None:
        row = await view.row("3", "mails")
        assert str(last) in row
        assert any("█" in word for word in row)
        assert "relay \\x1b[31m" in view.text

    watch(database.dsn, check, size=(120, 30))


@pytest.mark.long
@pytest.mark.slow
def test_a_topic_is_paused_with_a_reason_for_a_duration_and_resumed(database: Database, queue: Queue) -> None:
    start(queue, "w1", "orders")

    async def act(view: View) -> None:
        await view.row("orders")
        await view.press("p")
        await view.shows("Pause topic orders?")
        await view.write("down")
        await view.press("tab")
        await view.write("soon")
        await view.press("enter")
        await view.shows("expected a duration")
        await view.press("ctrl+u")
        await view.write("30m")
        await view.press("enter")
        await view.until(lambda: queue.row("SELECT FROM messages.topic WHERE topic = 'orders'") is not None)
        query = "SELECT paused_reason, resume_at - clock_timestamp() AS left FROM messages.topic WHERE topic = 'orders'"
        paused = queue.row(query)
        assert (paused.paused_reason, timedelta(minutes=28) < paused.left <= timedelta(minutes=30)) == ("down", True)
        await view.until(lambda: "paused" in view.text and "Pause topic" not in view.text)

        await view.until(lambda: view.app.topics_table.chosen.state == "paused")
        await view.press("p")
        await view.shows("Let topic orders go on?")
        await view.press("y")
        await view.shows("resumed orders")
        assert queue.value("SELECT paused_at FROM messages.topic WHERE topic = 'orders'") is None

    watch(database.dsn, act)


@pytest.mark.long
def test_an_action_requires_a_reason_and_a_confirmation(database: Database, queue: Queue) -> None:
    die(queue, "orders")
    queue.publish("orders")

    async def act(view: View) -> None:
        await view.row("orders")
        await view.press("p")
        await view.shows("Pause topic orders?")
        await view.press("enter", "escape")
        await view.press("3", "r")
        await view.shows("Put 1 dead message back into orders?")
        await view.press("n")
        await view.until(lambda: len(view.app.screen_stack) == 1)

    watch(database.dsn, act)
    assert queue.rows("SELECT topic FROM messages.topic WHERE paused_at IS NOT NULL") == []
    assert len(queue.ids()) == 1


@pytest.mark.long
def test_a_group_of_dead_messages_is_redriven_after_a_preview(database: Database, queue: Queue) -> None:
    for _ in range(3):
        die(queue, "mails", error="relay is down")
    die(queue, "mails", error="no such address")

    async def act(view: View) -> None:
        await view.row("3", "mails")
        await view.press("3", "r")
        await view.shows("Put 3 dead messages back into mails?", "relay is down")
        await view.press("y")
        await view.shows("put back 3 messages of mails")
        await view.until(lambda: len(view.app.dead_table.rows) == 1)

    watch(database.dsn, act)
    assert len(queue.ids()) == 3


def test_a_group_without_a_fingerprint_is_redriven_alone(database: Database, queue: Queue) -> None:
    queue.publish_many(2, "mails")
    claimed = queue.claim("mails")
    queue.settle("fail", claimed[:1], [None])
    queue.settle("fail", claimed[1:], ["boom"])
    reader = SnapshotReader()
    reader.read(queue.conn, 0.0)
    group = next(each for each in reader.read(queue.conn, 0.0).dead or [] if each.error_fingerprint is None)

    assert action.preview(queue.conn, group, action.RedriveOptions()).ids == [claimed[0].id]


@pytest.mark.long
def test_a_message_is_explained(database: Database, queue: Queue) -> None:
    message_id = queue.publish("orders")

    async def act(view: View) -> None:
        await view.row("orders")
        await view.press("e")
        await view.shows("Which message?")
        await view.write(str(message_id))
        await view.press("enter")
        await view.shows(f"Message {message_id}", "unhandled", "no live worker handles topic orders")

    watch(database.dsn, act)


@pytest.mark.long
def test_a_filter_narrows_all_tables_and_escape_clears_it(database: Database, queue: Queue) -> None:
    start(queue, "w1", "orders")
    start(queue, "w2", "mails")
    die(queue, "mails")

    async def act(view: View) -> None:
        await view.shows("Topics 2", "Workers 2", "Dead 1")
        await view.press("slash")
        await view.press(*"ord")
        await view.shows("Topics 1 of 2", "Workers 1 of 2", "Dead 0 of 1", "no row has 'ord'")
        await view.press("enter", "escape")
        await view.shows("Topics 2", "Workers 2")

    watch(database.dsn, act)


def test_the_cursor_stays_on_its_row_when_rows_are_added_and_reordered(database: Database, queue: Queue) -> None:
    queue.publish("m")
    queue.publish_many(5, "z")

    async def act(view: View) -> None:
        table = view.app.topics_table
        await view.until(lambda: len(table.rows) == 2)
        await view.press("down")
        assert table.chosen.topic == "z"
        queue.publish("a")
        await view.until(lambda: len(table.rows) == 3)
        assert table.chosen.topic == "z"
        await view.press("o")
        await view.shows("by ready")
        assert [row.topic for row in table.rows] == ["z", "a", "m"]
        assert table.chosen.topic == "z"

    watch(database.dsn, act)


@pytest.mark.long
def test_a_frozen_view_does_not_change_until_it_resumes(database: Database, queue: Queue) -> None:
    queue.publish("a")

    async def act(view: View) -> None:
        await view.row("a")
        await view.press("space")
        await view.shows("frozen")
        queue.publish("b")
        reader = view.app.feed._reader
        at = reader._dead_at
        reader.forget()
        await view.until(lambda: reader._dead_at > at)
        assert "Topics 1" in view.text
        await view.press("space")
        await view.shows("Topics 2")

    watch(database.dsn, act)


def test_an_empty_queue_shows_the_next_step_and_the_keys(database: Database) -> None:
    async def check(view: View) -> None:
        await view.shows("no topic yet: publish a message", "no worker: start one with `pgrouse run`")
        await view.shows("no dead message in 24 hours")
        await view.press("question_mark")
        await view.shows("pause the chosen topic, or resume it", "explain a message")

    watch(database.dsn, check)


def test_the_first_picture_does_not_wait_for_the_groups_of_the_dead(
    database: Database, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.publish("orders")
    gate, read = threading.Event(), snapshot._dead
    monkeypatch.setattr(snapshot, "_dead", lambda conn: read(conn) if gate.wait(60) else [])

    async def check(view: View) -> None:
        await view.row("orders")
        assert "reading" in view.text, "what is not known yet is not said to be empty"
        gate.set()
        await view.shows("no dead message in 24 hours")

    watch(database.dsn, check)


@pytest.mark.long
def test_a_thousand_topics_are_browsed_with_keys(database: Database, queue: Queue) -> None:
    queue.conn.execute(
        "INSERT INTO messages.message (topic, payload) SELECT 'tenant-' || to_char(n, 'FM0000'), '1' "
        "FROM generate_series(1, 1000) AS n"
    )

    async def check(view: View) -> None:
        await view.shows("Topics 1,000", "tenant-0001")
        await view.press("end")
        await view.shows("tenant-1000")
        await view.press("pageup", "home")
        await view.shows("tenant-0001")

    watch(database.dsn, check)


@pytest.mark.parametrize("size", [(80, 24), (30, 10)])
def test_the_view_fits_terminals_of_any_size(database: Database, queue: Queue, size: tuple[int, int]) -> None:
    start(queue, "a-worker-with-a-name-that-is-longer-than-any-column", "orders")
    die(queue, "orders", error="e" * 300)

    async def check(view: View) -> None:
        await view.until(lambda: view.app.topics_table.rows)
        assert len(view.lines) == size[1]
        assert max(map(len, view.lines)) <= size[0]
        if size[0] >= 80:
            await view.shows("Topics 1", "Workers 1", "Dead 1", "STATE", "WORKS ON", "ERROR", "Quit")
        await view.pilot.resize_terminal(100, 30)
        await view.until(lambda: len(view.lines) == 30)
        await view.shows("STATE", "WORKS ON", "ERROR")

    watch(database.dsn, check, size=size)


@contextmanager
def away(server: Postgres, database: Database) -> Iterator[None]:
    """The database accepts no connection, and closes the existing ones."""
    name = sql.Identifier(database.name)
    with server.admin() as admin:
        admin.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(name))
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [database.name])
        try:
            yield
        finally:
            admin.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS true").format(name))


@pytest.mark.long
def test_an_outage_of_the_database_is_shown_and_ends(server: Postgres, database: Database, queue: Queue) -> None:
    queue.publish("orders")

    async def check(view: View) -> None:
        await view.row("orders")
        with away(server, database):
            await view.shows("no database, again in", "orders")
            await view.press("p")
            await view.shows("Pause topic orders?")
            await view.write("why")
            await view.press("enter")
            await view.shows("That did not work")
        await view.until(lambda: view.app.trouble is None)
        Queue(database.connect()).publish("mails")
        await view.shows("Topics 2")

    watch(database.dsn, check)


@pytest.mark.long
def test_a_user_who_may_not_act_sees_the_missing_right(database: Database, queue: Queue) -> None:
    queue.publish("orders")
    queue.conn.execute("GRANT SELECT ON messages.breaker TO messages_analyst")

    async def act(view: View) -> None:
        await view.row("orders")
        await view.press("p")
        await view.shows("Pause topic orders?")
        await view.write("why")
        await view.press("enter")
        await view.shows("That did not work", "messages_operator")

    watch(f"{database.dsn} options='-c role=messages_analyst'", act)


@pytest.mark.long
def test_a_database_without_the_schema_shows_how_to_install_it(empty_database: Database) -> None:
    async def check(view: View) -> None:
        await view.shows("no answer", "pgrouse migrate")

    watch(empty_database.dsn, check)


@pytest.mark.long
def test_dead_messages_are_redriven_with_options(database: Database, queue: Queue) -> None:
    queue.conn.execute("UPDATE messages.topic SET max_redrives = 1 WHERE topic = '*'")
    dead = queue.publish_many(2, "orders")
    queue.settle("fail", queue.claim("orders"), ["boom", "boom"])
    queue.rows("SELECT messages.redrive(%s)", [dead])
    queue.settle("fail", queue.claim("orders"), ["boom", "boom"])

    async def scenario(view: View) -> None:
        await view.row("2", "orders")
        await view.press("3", "r")
        await view.shows("Nothing would be put back.", "stayed dead: redriven max_redrives times already")
        await view.press("o")
        await view.shows("how many become available per second")
        await view.write("0.1")
        await view.press("tab")
        await view.write("1h")
        await view.press("tab", "ctrl+u")
        await view.write("yes")
        await view.press("enter")
        await view.shows("Put 2 dead messages back")
        await view.press("y")
        await view.until(lambda: queue.value("SELECT count(*) FROM messages.message") == 2)

    watch(database.dsn, scenario)

    first, second = (
        row[0] for row in queue.rows("SELECT available_at - clock_timestamp() FROM messages.message ORDER BY 1")
    )
    assert timedelta(minutes=58) < first <= timedelta(hours=1)
    assert second - first == pytest.approx(timedelta(seconds=10), abs=timedelta(seconds=1))
