"""The workers over HTTP, by the names in their claims.

They are written to the registry of workers from time to time, not with each claim.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from pgrouse.client.call import run_async
from pgrouse.client.calls.processing.worker import touch_http_worker
from pgrouse.web.access.database_pool import DatabasePool

# How often a worker's row gets a new time. A worker that is asked to drain learns this with its first claim after this
# time.
RECORD_EVERY_S = 5.0
# A topic that a worker has not asked for in this time is not its topic any more. A worker without topics is forgotten.
FORGET_S = 60.0
MAX_TOPICS_PER_WORKER = 200
# More workers are not remembered here: each of their claims is recorded.
MAX_WORKERS = 10_000


@dataclass
class _HttpWorker:
    at: float = 0.0
    is_draining: bool = False
    topics: dict[str, float] = field(default_factory=dict)


class HttpWorkers:
    """The workers that claim from one web server.

    Args:
        db: the registry's.
    """

    def __init__(self, db: DatabasePool) -> None:
        self.db = db
        self._workers: dict[str, _HttpWorker] = {}

    async def record_claim(self, worker: str, host: str, topics: list[str], limit: int) -> bool:
        """Note that a worker asks for messages; return whether it is to drain, and gets none.

        Raises:
            psycopg.Error: the database is away.
        """
        now = time.monotonic()
        known = self._workers.get(worker) or _HttpWorker()
        is_known = all(topic in known.topics for topic in topics)
        known.topics |= dict.fromkeys(topics, now)
        if is_known and now - known.at < RECORD_EVERY_S:
            return known.is_draining
        known.topics = {topic: at for topic, at in known.topics.items() if now - at < FORGET_S}
        async with self.db.connection() as conn:
            topics = sorted(known.topics)[:MAX_TOPICS_PER_WORKER]
            is_draining = await run_async(conn, touch_http_worker(worker, host, topics, limit))
        known.at, known.is_draining = now, is_draining
        self._remember(worker, known)
        return known.is_draining

    def _remember(self, worker: str, known: _HttpWorker) -> None:
        """Remember a worker, and forget those that have not asked for a while: they stand first."""
        self._workers.pop(worker, None)
        while self._workers and next(iter(self._workers.values())).at < known.at - FORGET_S:
            del self._workers[next(iter(self._workers))]
        if len(self._workers) < MAX_WORKERS:
            self._workers[worker] = known
