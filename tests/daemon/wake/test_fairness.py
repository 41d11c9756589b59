"""A channel with few messages waits for one rotation at most, however many the others have."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from psycopg import sql

from tests.daemon.process import Daemon
from tests.daemon.runs import Runs
from tests.server.deadline import eventually
from tests.sql.queue import Queue

Daemons = Callable[..., list[Daemon]]
SLOTS = 5


@pytest.mark.every_server
@pytest.mark.parametrize("floods", [1, 30])
def test_a_message_of_a_small_channel_waits_for_one_rotation_at_most(
    two_daemons: Daemons, queue: Queue, runs: Runs, floods: int
) -> None:
    two_daemons({"job": "timed:run"}, concurrency=SLOTS, claim_connections=1)
    queue.publish_many(300, "job", channel=sql.SQL("'flood' || (n % {})").format(floods), payload={"for": 0.05})
    eventually(lambda: len(runs.rows()) > 50)

    published = [queue.publish("job", channel=channel, payload={"for": 0.05}) for channel in ("a quiet one", "zzz")]
    # From here on every claim sees them.
    seen_at = queue.value("SELECT clock_timestamp()")

    eventually(lambda: all(queue.archived(each) is not None for each in published))
    eventually(lambda: queue.ids() == [])
    for each in published:
        # Claims, not runs: a daemon may pause between the two, and the other one continues.
        waited_for = queue.value(
            """
            SELECT count(*) FROM messages.message_archive AS f JOIN messages.message_archive AS q ON q.id = %s
            WHERE f.channel LIKE 'flood%%' AND f.locked_at > %s AND f.locked_at < q.locked_at
            """,
            [each, seen_at],
        )
        # Each daemon rotates by itself; a claim of all slots may be under way.
        assert waited_for <= 2 * (floods + 2 * SLOTS)
