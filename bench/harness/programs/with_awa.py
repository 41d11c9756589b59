"""awa in the harness: its Python client on its Rust core. The harness has an adapter of its own only in Rust."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from awa import AsyncClient
from contract import Process, Queue, main


@dataclass
class Job:
    at: float
    run: str
    batch: int
    n: int
    padding: str


class Awa(Queue):
    async def start(self, process: Process) -> None:
        self._client = AsyncClient(self.url)
        await self._client.migrate()
        # Without this, a new database stays with the older engine, which takes no COPY.
        await self._client.install_queue_storage()
        for topic in self.topics:

            @self._client.task(Job, queue=topic)
            async def job(given: Any) -> None:
                await process(({"at": given.args.at},))

        await self._client.start([(topic, self.workers) for topic in self.topics])

    async def publish(self, topic: str, payloads: list[dict[str, Any]]) -> None:
        await self._client.enqueue_many_copy([Job(**payload) for payload in payloads], queue=topic)

    async def depth(self) -> int:
        return sum(each.available for each in await self._client.queue_stats())

    async def stop(self) -> None:
        await self._client.shutdown()


main(Awa, version("awa-pg"))
