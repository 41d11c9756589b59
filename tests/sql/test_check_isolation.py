"""messages.check_isolation: counting running messages needs a new snapshot for each statement."""

from __future__ import annotations

import pytest
from psycopg import errors

from tests.sql.queue import Queue


def test_read_committed_is_allowed(queue: Queue) -> None:
    queue.call("check_isolation", "t")


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("settings", [{"channel_concurrency": 1}, {"ordered": True}, {"channel_min_interval": "1 s"}])
def test_a_claim_from_limited_channels_is_refused_above_it(
    queue: Queue, level: str, settings: dict[str, object]
) -> None:
    queue.policy(**settings)
    queue.publish(channel="c")
    queue.conn.execute(f"SET default_transaction_isolation = '{level}'".encode())

    with pytest.raises(
        errors.ActiveSqlTransaction, match="topic t has limits, and this transaction cannot see"
    ) as caught:
        queue.claim()

    assert caught.value.diag.message_hint == "claim in a transaction with ISOLATION LEVEL READ COMMITTED"


def test_topics_without_limits_may_be_claimed_at_any_level(queue: Queue) -> None:
    queue.publish()

    with queue.conn.transaction():
        queue.conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")

        assert len(queue.claim()) == 1
