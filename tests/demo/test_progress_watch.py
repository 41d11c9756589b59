"""What the demo waits for."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any, cast

from pgrouse.cli.demo.alerts import AlertFeed
from pgrouse.cli.demo.progress_watch import ProgressWatch, PublishedMessages
from pgrouse.cli.demo.screen import Screen
from tests.server.postgres import Database
from tests.sql.queue import Queue


@dataclass
class Slow:
    """Workers that process nothing until the demo looks after them."""

    queue: Queue

    def check(self) -> None:
        self.queue.settle("complete", self.queue.claim())


def test_it_waits_for_what_was_published_since_it_counted(queue: Queue, database: Database) -> None:
    workers = cast("Any", Slow(queue))
    watch = ProgressWatch(
        queue.conn, PublishedMessages(), workers, AlertFeed(database.connect()), Screen(io.StringIO())
    )
    watch.count()
    watch.published.publish(queue.conn, "t", {})

    watch.until(lambda: not watch.waiting, "waiting")

    assert watch.done == 1
