"""awa: its Python client on its Rust core."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from awa import AsyncClient
from contract import Handle, Peer, main

# As many as in its quick start; and many more.
WORKERS = {"defaults": 4, "best": 200, "notified": 4}


@dataclass
class Noop:
    n: int


class Awa(Peer):
    async def install(self) -> None:
        await self.connect()
        await self.client.migrate()
        # Without this, a new database stays with the older engine, which takes no COPY.
        await self.client.install_queue_storage()

    async def connect(self) -> None:
        self.client = AsyncClient(self.url)

    async def publish(self, n: int) -> None:
        await self.client.insert(Noop(n), queue="noop")

    async def publish_many(self, numbers: Sequence[int]) -> None:
        await self.client.enqueue_many_copy([Noop(n) for n in numbers], queue="noop")

    async def work(self, handle: Handle, settings: str) -> None:
        await self.connect()

        @self.client.task(Noop, queue="noop")
        async def noop(job) -> None:
            handle(job.args.n)

        await self.client.start([("noop", WORKERS[settings])])
        await asyncio.Event().wait()


main(Awa())
