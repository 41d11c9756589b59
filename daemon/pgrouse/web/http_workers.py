"""Who works over HTTP, by the names that claims give: entered into the registry of workers now and then, not with each claim."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from pgrouse.web.database_pool import Database

# How often a worker's row is dated. Whom somebody asks to drain hears it with the first claim after so long.
EVERY_S = 5.0
# What it has not asked for in this time is none of its topics any more, and who asked for nothing is forgotten here.
FORGET_S = 60.0
MOST_TOPICS = 200
# Of more workers each claim is a sign.
MOST = 10_000

CLAIMS = b"SELECT messages.worker_claims(%s, %s, %s::text[], %s) AS drains"


@dataclass
class _Signed:
    at: float = 0.0
    drains: bool = False
    topics: dict[str, float] = field(default_factory=dict)


class Roll:
    """The workers that claim from one web server.

    Args:
        db: the registry's.
    """

    def __init__(self, db: Database) -> None:
        self.db = db
        self._workers: dict[str, _Signed] = {}

    async def sign(self, worker: str, host: str, topics: list[str], limit: int) -> bool:
        """Note that a worker asks for messages; return whether it is to drain, and gets none.

        Raises:
            psycopg.Error: the database is away.
        """
        now = time.monotonic()
        signed = self._workers.get(worker) or _Signed()
        is_known = all(topic in signed.topics for topic in topics)
        signed.topics |= dict.fromkeys(topics, now)
        if is_known and now - signed.at < EVERY_S:
            return signed.drains
        signed.topics = {topic: at for topic, at in signed.topics.items() if now - at < FORGET_S}
        async with self.db.connection() as conn:
            values = [worker, host, sorted(signed.topics)[:MOST_TOPICS], limit]
            row = await (await conn.execute(CLAIMS, values)).fetchone()
        signed.at, signed.drains = now, bool(row and row["drains"])
        self._keep(worker, signed)
        return signed.drains

    def _keep(self, worker: str, signed: _Signed) -> None:
        """Remember a worker, and forget those that have not asked for a while: they stand first."""
        self._workers.pop(worker, None)
        while self._workers and next(iter(self._workers.values())).at < signed.at - FORGET_S:
            del self._workers[next(iter(self._workers))]
        if len(self._workers) < MOST:
            self._workers[worker] = signed
