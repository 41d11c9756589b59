"""pgmq: its Python client and its SQL. It has no worker: this program has the loop of its documentation."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Sequence

import psycopg
from contract import Handle, Peer, main
from pgmq import PGMQueue
from pgmq.install import install_pgmq_from_sql
from pgmq.notify_listener import SyncNotificationListener
from psycopg_pool import ConnectionPool

NAME = "noop"


class Pgmq(Peer):
    async def install(self) -> None:
        with psycopg.connect(self.url) as conn:
            install_pgmq_from_sql(conn=conn)
            conn.commit()
        await self.connect()
        self.client.create_queue(NAME)

    async def connect(self) -> None:
        self.client = PGMQueue(pool=ConnectionPool(self.url, min_size=1, open=True), init_extension=False)

    async def publish(self, n: int) -> None:
        self.client.send(NAME, {"n": n})

    async def publish_many(self, numbers: Sequence[int]) -> None:
        self.client.send_batch(NAME, [{"n": n} for n in numbers])

    async def work(self, handle: Handle, settings: str) -> None:
        await self.connect()
        if settings == "notified":
            self._woken(handle)
        while True:
            self._poll(handle, 5000 if settings == "best" else 1)

    def _poll(self, handle: Handle, at_once: int) -> None:
        self._process(handle, self.client.read_with_poll(NAME, vt=30, qty=at_once))

    def _woken(self, handle: Handle) -> None:
        """Read after each notification, and every five seconds."""
        # Use no throttle: with one, the last message of a burst gets no notification.
        self.client.enable_notify(NAME, throttle_interval_ms=0)
        # Its notifications have no payload, and its listener warns of each.
        self.client.logger.setLevel(logging.ERROR)
        woken: queue.SimpleQueue[object] = queue.SimpleQueue()
        listener = SyncNotificationListener(self.client)
        listener.dsn = self.url
        threading.Thread(target=listener.listen, args=(NAME, woken.put), daemon=True).start()
        while True:
            while self._process(handle, self.client.read_batch(NAME, vt=30, batch_size=100)):
                pass
            try:
                woken.get(timeout=5)
            except queue.Empty:
                continue

    def _process(self, handle: Handle, messages: list) -> bool:
        for message in messages:
            handle(message.message["n"])
        if len(messages) == 1:
            self.client.archive(NAME, messages[0].msg_id)
        elif messages:
            self.client.archive_batch(NAME, [message.msg_id for message in messages])
        return bool(messages)


main(Pgmq())
