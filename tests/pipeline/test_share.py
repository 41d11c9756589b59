"""What one task of `consume` does, with a real database and without Spark."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from pyspark_pgrouse.claim.share import ConsumerSettings, ShareRequest, serve
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue

HELD = "SELECT count(*) FROM messages.message WHERE locked_by = 'c'"


def test_the_next_share_is_claimed_while_the_last_one_is_settled(database: Database, queue: Queue) -> None:
    first, second = queue.publish_many(2)
    settings = ConsumerSettings("c", ("t",), database.dsn)
    held = serve(settings, ShareRequest(rows=1)).claimed
    looker = Queue(database.connect())

    with ThreadPoolExecutor(1) as thread:
        with queue.conn.transaction():
            queue.conn.execute("SELECT FROM messages.message WHERE id = %s FOR UPDATE", [first])
            task = thread.submit(serve, settings, ShareRequest(settle=held, rows=1))
            eventually(lambda: looker.value(HELD) == 2)
        done = task.result(timeout=60)

    assert [id_ for id_, _ in done.claimed.refs()] == [second]
    assert sum(count for became, count in done.counted if became == "success") == 1


def test_what_the_last_share_held_back_is_claimed_once_it_is_settled(database: Database, queue: Queue) -> None:
    queue.policy(ordered=True)
    _, second = queue.publish_many(2, channel="a")
    settings = ConsumerSettings("c", ("t",), database.dsn)
    held = serve(settings, ShareRequest(rows=2)).claimed

    done = serve(settings, ShareRequest(settle=held, rows=2))

    assert [id_ for id_, _ in done.claimed.refs()] == [second]
