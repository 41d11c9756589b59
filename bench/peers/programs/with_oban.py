"""oban-py, which is called `oban` on PyPI: the free part, without Oban Pro."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import psycopg
import uvloop
from contract import Handle, Peer, main
from oban import Oban, worker
from oban.schema import install_sql

# As many as in its quick start; and many more.
LIMITS = {"defaults": 10, "best": 200, "notified": 10}


@worker(queue="noop")
class Noop:
    handle: Handle = staticmethod(print)

    async def process(self, job) -> None:
        self.handle(job.args["n"])


class ObanPy(Peer):
    run = staticmethod(uvloop.run)

    async def install(self) -> None:
        with psycopg.connect(self.url, autocommit=True) as conn:
            conn.execute(install_sql())

    async def connect(self) -> None:
        self.oban = await Oban(pool=await Oban.create_pool(self.url)).start()

    async def publish(self, n: int) -> None:
        await self.oban.enqueue(Noop.new({"n": n}))

    async def publish_many(self, numbers: Sequence[int]) -> None:
        await self.oban.enqueue_many([Noop.new({"n": n}) for n in numbers])

    async def work(self, handle: Handle, settings: str) -> None:
        Noop.handle = staticmethod(handle)
        pool = await Oban.create_pool(self.url, max_size=20 if settings == "best" else None)
        async with Oban(pool=pool, queues={"noop": LIMITS[settings]}):
            await asyncio.Event().wait()


main(ObanPy())
