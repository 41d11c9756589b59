"""pgqrs: its Python bindings. Its consumers poll; it has no notifications."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pgqrs
from contract import Handle, Peer, main


class Pgqrs(Peer):
    async def install(self) -> None:
        store = await pgqrs.connect(self.url)
        await pgqrs.admin(store).install()
        await store.queue("noop")

    async def connect(self) -> None:
        config = pgqrs.Config(self.url)
        # By default a producer may not publish as fast as a benchmark does.
        config.max_enqueue_per_second = config.max_enqueue_burst = 1_000_000_000
        self.store = await pgqrs.connect_with(config)
        self.producer = await self.store.producer("noop")

    async def publish(self, n: int) -> None:
        await self.producer.enqueue({"n": n})

    async def publish_many(self, numbers: Sequence[int]) -> None:
        await pgqrs.enqueue_batch(self.producer, [{"n": n} for n in numbers])

    async def work(self, handle: Handle, settings: str) -> None:
        config = pgqrs.Config(self.url)
        if settings == "best":
            config.default_max_batch_size = 1000
        self.store = await pgqrs.connect_with(config)
        consumers = 2 if settings == "best" else 1
        await asyncio.gather(*(self._consume(handle, settings == "best") for _ in range(consumers)))

    async def _consume(self, handle: Handle, in_batches: bool) -> None:
        if not in_batches:
            async with self.store.consume_iter("noop") as messages:
                async for message in messages:
                    handle(message.payload["n"])
                    await messages.archive(message.id)
        consumer = await self.store.consumer("noop")
        while True:
            batch = await consumer.dequeue(batch_size=1000)
            for message in batch:
                handle(message.payload["n"])
            if batch:
                await consumer.archive_many([message.id for message in batch])
            else:
                await asyncio.sleep(0.05)


main(Pgqrs())
