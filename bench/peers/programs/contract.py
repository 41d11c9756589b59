"""The commands of every peer's program; `contract.mjs` is the same for Node.

  install                     make its tables
  publish FIRST COUNT CHUNK   publish {"n": FIRST}, ... in bulk, CHUNK a call; prints {"seconds": ...}
  trickle FIRST COUNT EVERY   publish them one at a time, each EVERY seconds; prints
                              {"called": [...], "returned": [...]}
  work SETTINGS               process what is published until it is terminated; SETTINGS: defaults, best, notified

The database is PGROUSE_BENCH_URL; what a handler does is in `tally.py`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence

from tally import handler

Handle = Callable[[int], None]


class Peer(ABC):
    """A queue, used as its documentation describes."""

    url = os.environ.get("PGROUSE_BENCH_URL", "")

    @abstractmethod
    async def install(self) -> None:
        """Create its tables."""

    @abstractmethod
    async def connect(self) -> None:
        """Prepare for publishing."""

    @abstractmethod
    async def publish(self, n: int) -> None:
        """Publish one message, committed when this returns."""

    @abstractmethod
    async def publish_many(self, numbers: Sequence[int]) -> None:
        """Publish these in one call, committed when this returns."""

    @abstractmethod
    async def work(self, handle: Handle, settings: str) -> None:
        """Process published messages with `handle` as handler."""


def main(peer: Peer) -> None:
    """Run the command in the arguments."""
    command, *arguments = sys.argv[1:]
    commands: dict[str, Callable[..., Awaitable[None]]] = {
        "install": peer.install,
        "publish": lambda *given: _publish(peer, *map(int, given)),
        "trickle": lambda first, count, every: _trickle(peer, int(first), int(count), float(every)),
        "work": lambda settings: _work(peer, settings),
    }
    runner = getattr(peer, "run", asyncio.run)
    runner(commands[command](*arguments))
    sys.stdout.flush()
    # The threads of pgqrs, which Python does not know, sometimes abort a Python process that ends.
    os._exit(0)


async def _publish(peer: Peer, first: int, count: int, chunk: int) -> None:
    await peer.connect()
    chunks = [range(at, min(at + chunk, first + count)) for at in range(first, first + count, chunk)]
    begin = time.monotonic()
    for numbers in chunks:
        await peer.publish_many(numbers)
    print(json.dumps({"seconds": time.monotonic() - begin}))


async def _trickle(peer: Peer, first: int, count: int, every: float) -> None:
    await peer.connect()
    called, returned = [], []
    begin = time.monotonic()
    for number in range(count):
        await asyncio.sleep(max(0.0, begin + every * number - time.monotonic()))
        called.append(time.monotonic_ns())
        await peer.publish(first + number)
        returned.append(time.monotonic_ns())
    print(json.dumps({"called": called, "returned": returned}))


async def _work(peer: Peer, settings: str) -> None:
    await peer.work(handler(), settings)
