"""The trigger apply_publish_policies: counters are charged once per statement, whatever the number of rows. The functions that it calls have tests of their own."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import sql

from tests.sql.queue import Queue

LIMITS = {"max_depth": 1_000_000, "publish_rate": 1_000_000, "burst": 1_000_000}


@pytest.mark.parametrize("rows", [1, 1000])
def test_one_statement_makes_one_change_of_each_counter(queue: Queue, rows: int) -> None:
    queue.policy("t", **LIMITS)
    queue.publish()
    written = "SELECT coalesce(sum(n_tup_upd), 0) FROM pg_stat_xact_user_tables WHERE schemaname = 'messages' AND relname IN ('depth', 'rate')"

    with queue.conn.transaction():
        before = queue.value(written)
        queue.publish_many(rows)
        assert queue.value(written) == before + 2


def test_a_statement_of_several_topics_charges_each_topic_for_its_own_rows(queue: Queue) -> None:
    queue.policy("a", **LIMITS)
    queue.policy("b", **LIMITS)

    queue.conn.execute(
        "INSERT INTO messages.message (topic, payload) SELECT CASE WHEN n % 3 = 0 THEN 'a' ELSE 'b' END, '1' FROM generate_series(1, 30) AS n"
    )

    assert queue.rows("SELECT * FROM messages.depth ORDER BY topic") == [("a", 10), ("b", 20)]


def test_a_statement_that_inserts_nothing_charges_nothing(queue: Queue) -> None:
    queue.policy("t", **LIMITS)

    queue.publish_many(0)

    assert queue.rows("SELECT FROM messages.depth") == []
    assert queue.rows("SELECT FROM messages.rate") == []


def test_a_publish_inside_the_statement_of_another_publish_never_exceeds_the_limit(queue: Queue) -> None:
    queue.policy("t", max_depth=2, on_full="drop")
    nested = "to_jsonb(coalesce((SELECT p.id FROM messages.publish('t', to_jsonb(n)) AS p), 0))"

    with pytest.raises(psycopg.Error) as caught:
        queue.publish_many(3, payload=sql.SQL(nested))

    assert caught.value.sqlstate == "PGR01"
    assert queue.ids() == []
