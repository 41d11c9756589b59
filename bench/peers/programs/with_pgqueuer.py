"""pgqueuer, with asyncpg and its QueueManager."""

from __future__ import annotations

import json
from collections.abc import Sequence

import asyncpg
import uvloop
from contract import Handle, Peer, main
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries


class Pgqueuer(Peer):
    run = staticmethod(uvloop.run)

    async def install(self) -> None:
        await self.connect()
        await self.queries.install()

    async def connect(self) -> None:
        self.driver = AsyncpgDriver(await asyncpg.connect(self.url))
        self.queries = Queries(self.driver)

    async def publish(self, n: int) -> None:
        await self.queries.enqueue("noop", json.dumps({"n": n}).encode())

    async def publish_many(self, numbers: Sequence[int]) -> None:
        payloads = [json.dumps({"n": n}).encode() for n in numbers]
        await self.queries.enqueue(["noop"] * len(payloads), payloads, [0] * len(payloads))

    async def work(self, handle: Handle, settings: str) -> None:
        await self.connect()
        pgq = PgQueuer(self.driver)

        @pgq.entrypoint("noop")
        async def noop(job: Job) -> None:
            handle(json.loads(job.payload)["n"])

        await pgq.run(batch_size=1000 if settings == "best" else 10)


main(Pgqueuer())
