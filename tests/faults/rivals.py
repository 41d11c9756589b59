"""Workers in plain SQL that want the same messages.

Each of their topics has one message or none, so claims are always late or just in time.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from tests.faults.ledger import Group, Ledger
from tests.faults.topics import RACED, TOPICS
from tests.faults.traffic import Actor
from tests.sql.queue import Queue, Row


class Rival(Actor):
    """Publishes one message, and claims until nothing is left.

    It records what it does as publishers and handlers do.
    """

    def __init__(self, name: str, dsn: str, journal: Path, ledger: Ledger, seed: str) -> None:
        super().__init__(name, dsn, ledger, seed)
        self._journal, self._sent = journal, 0

    def act(self, conn: psycopg.Connection[Any]) -> None:
        """Publish, then claim and complete."""
        queue = Queue(conn)
        self._publish(queue)
        while claimed := queue.claim(*RACED, worker=self.name, limit=2):
            self._note("start", claimed)
            self._note("reported", claimed, how="success")
            queue.settle("complete", claimed)
        self.stopping.wait(self.chance.uniform(0, 0.01))

    def _publish(self, queue: Queue) -> None:
        self._sent += 1
        tag, topic = f"{self.name}/{self._sent}", self.chance.choice(RACED)
        with self.ledger.recorded(Group(topic, [tag])) as group:
            group.ids = [queue.publish(topic, payload=Jsonb(TOPICS[topic].payload(tag, self.chance)))]

    def _note(self, what: str, claimed: list[Row], **more: Any) -> None:
        with self._journal.open("a") as journal:
            for row in claimed:
                entry = {"what": what, "id": row.id, "claim": row.claim_id, "topic": row.topic, "at": time.time()}
                journal.write(json.dumps({**entry, "attempt": row.attempt, "pid": os.getpid(), **more}) + "\n")
