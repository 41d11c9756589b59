"""A client with a low cost: keep-alive connections that each repeat a request as soon as the answer has arrived.

Call: `http_client.py HOST PORT CONNECTIONS SECONDS BATCH`, with the token in $TOKEN. It prints how many requests were
answered, how many of them with another status than 201, and how long they took.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import cast

import uvloop

WARM_UP_S = 0.5


class Connection(asyncio.Protocol):
    """One connection: answers are short and arrive in one piece, or are joined."""

    def __init__(self, request: bytes, tally: Tally) -> None:
        self.request, self.tally, self.sent_at, self.got = request, tally, 0.0, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.send()

    def send(self) -> None:
        self.sent_at = time.perf_counter()
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self.got += data
        head, end, body = self.got.partition(b"\r\n\r\n")
        if not end or len(body) < _length(head):
            return
        self.tally.note(self.got.startswith(b"HTTP/1.1 201"), time.perf_counter() - self.sent_at)
        self.got = b""
        self.send()


class Tally:
    """The answers, after a warm-up."""

    def __init__(self) -> None:
        self.from_ = time.perf_counter() + WARM_UP_S
        self.took: list[float] = []
        self.refused = 0

    def note(self, is_published: bool, took_s: float) -> None:
        if time.perf_counter() > self.from_:
            self.took.append(took_s)
            self.refused += not is_published


def _length(head: bytes) -> int:
    at = head.lower().index(b"content-length:") + 15
    return int(head[at:].split(b"\r\n", 1)[0])


def request(host: str, batch: int, token: str) -> bytes:
    """Return one request, all of it."""
    message = {"topic": "bench", "payload": {"id": 7, "total": 9.5, "customer": "c-1234", "lines": [1, 2, 3]}}
    path, content = ("/v1/messages", message) if batch == 1 else ("/v1/messages/batch", {"messages": [message] * batch})
    body = json.dumps(content).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
    )
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def main(host: str, port: int, connections: int, seconds: float, batch: int) -> None:
    """Send until the time is over."""
    loop, tally = asyncio.get_running_loop(), Tally()
    content = request(host, batch, os.environ["TOKEN"])
    for _ in range(connections):
        await loop.create_connection(lambda: Connection(content, tally), host, port)
    await asyncio.sleep(WARM_UP_S + seconds)
    took = sorted(tally.took)
    print(
        json.dumps(
            {
                "requests": len(took),
                "refused": tally.refused,
                "p50_s": took[len(took) // 2],
                "p99_s": took[len(took) * 99 // 100],
            }
        )
    )


if __name__ == "__main__":
    given = sys.argv[1:]
    uvloop.run(main(given[0], int(given[1]), int(given[2]), float(given[3]), int(given[4])))
