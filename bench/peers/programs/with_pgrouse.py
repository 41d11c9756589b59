"""pgrouse itself: only publishes; its worker is a real `pgrouse run`."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
from contract import Handle, Peer, main

from pgrouse import NewMessage, publish, publish_many


class Pgrouse(Peer):
    async def install(self) -> None:
        raise NotImplementedError  # bench/postgres.py does

    async def connect(self) -> None:
        self.conn = psycopg.connect(self.url, autocommit=True)

    async def publish(self, n: int) -> None:
        publish(self.conn, "noop", {"n": n})

    async def publish_many(self, numbers: Sequence[int]) -> None:
        publish_many(self.conn, [NewMessage(topic="noop", payload={"n": n}) for n in numbers])

    async def work(self, handle: Handle, settings: str) -> None:
        raise NotImplementedError  # bench/program.py does


main(Pgrouse())
