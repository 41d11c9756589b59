"""pgrouse in the harness: publishers and a worker in one process, by its public names.

The settings are the defaults, except the concurrency, which the harness asks for, and the number of attempts. With
`pgrouse-batch` as the second argument, the handler takes batches.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Any

import psycopg
import structlog
from contract import Process, Queue, main

import pgrouse
from pgrouse import AsyncClient, Client, NewMessage, Worker, migrate, publish_many, topic

# The harness kills processes; by default a message has one attempt.
ATTEMPTS = 5
BATCH_SIZE = 500
STOP_WITHIN_S = 2.0


class Pgrouse(Queue):
    """A worker, a connection that publishes, and a client that counts."""

    _conn: psycopg.AsyncConnection | None = None
    _client: AsyncClient | None = None

    async def start(self, process: Process) -> None:
        await asyncio.to_thread(self._install)
        handler = self._in_batches(process) if "pgrouse-batch" in sys.argv else self._one_by_one(process)
        self._worker = Worker(self.url, handlers=dict.fromkeys(self.topics, handler), concurrency=self.workers)
        await self._worker.start()

    def _install(self) -> None:
        migrate(self.url)
        with Client(self.url) as client:
            for name in self.topics:
                client.set_policy(name, max_attempts=ATTEMPTS)

    @staticmethod
    def _one_by_one(process: Process) -> Any:
        async def job(payload: dict[str, Any]) -> None:
            await process((payload,))

        return job

    @staticmethod
    def _in_batches(process: Process) -> Any:
        async def jobs(payloads: list[dict[str, Any]]) -> None:
            await process(payloads)

        return topic("job", batch_size=BATCH_SIZE)(jobs)

    async def publish(self, topic: str, payloads: list[dict[str, Any]]) -> None:
        if self._conn is None or self._conn.closed:
            self._conn = await psycopg.AsyncConnection.connect(self.url, autocommit=True)
        await publish_many(self._conn, [NewMessage(topic=topic, payload=payload) for payload in payloads])

    async def depth(self) -> int:
        client = self._client = self._client or await AsyncClient(self.url).__aenter__()
        try:
            return sum(each.ready for each in await client.stats(topics=list(self.topics)))
        except psycopg.OperationalError:
            self._client = None
            await client.__aexit__(None, None, None)
            raise

    async def stop(self) -> None:
        await self._worker.stop(timeout=STOP_WITHIN_S)

    async def wait(self) -> None:
        await self._worker.wait()


# The standard output is for the harness.
structlog.configure(
    logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
)
main(Pgrouse, pgrouse.__version__)
