"""procrastinate, with its psycopg connector."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import procrastinate
from contract import Handle, Peer, main

BEST_CONCURRENCY = 50


class Procrastinate(Peer):
    def __init__(self) -> None:
        self.handle: Handle = print
        connector = procrastinate.PsycopgConnector(conninfo=self.url, min_size=1, max_size=20)
        self.app = procrastinate.App(connector=connector)

        @self.app.task(name="noop")
        async def noop(n: int) -> None:
            self.handle(n)

        self.task = noop

    async def install(self) -> None:
        async with self.app.open_async():
            await self.app.schema_manager.apply_schema_async()

    async def connect(self) -> None:
        await self.app.open_async()

    async def publish(self, n: int) -> None:
        await self.task.defer_async(n=n)

    async def publish_many(self, numbers: Sequence[int]) -> None:
        await self.task.batch_defer_async(*({"n": n} for n in numbers))

    async def work(self, handle: Handle, settings: str) -> None:
        self.handle = handle
        options = {"concurrency": BEST_CONCURRENCY} if settings == "best" else {}
        async with self.app.open_async():
            await self.app.run_worker_async(install_signal_handlers=False, **options)


# It warns of an App in the main module, which matters only to programs that defer tasks by their module's name.
logging.getLogger("procrastinate").setLevel(logging.ERROR)
main(Procrastinate())
