"""What the listener makes of a ping that came back, or did not."""

from __future__ import annotations

from typing import Any

import pytest

from pgrouse.worker.loop import listener
from pgrouse.worker.loop.listener import Listener, ListenerMode, PingResult


class Connected:
    """Stands for the connection of a listener, on which nothing arrives."""

    is_connected = True
    closed = 0

    def __init__(self, *_: Any, **__: Any) -> None: ...

    async def receive(self, timeout_s: float) -> list[str]:
        return []

    async def close(self) -> None:
        Connected.closed += 1


@pytest.mark.parametrize(
    ("ping", "mode", "closed"),
    [
        (PingResult.RECEIVED, ListenerMode.LISTENING, 0),
        (PingResult.NOT_RECEIVED, ListenerMode.DEGRADED, 1),
        (PingResult.NOT_SENT, ListenerMode.DEGRADED, 0),
    ],
)
async def test_a_ping_that_was_sent_and_did_not_arrive_makes_it_connect_again(
    monkeypatch: pytest.MonkeyPatch, ping: PingResult, mode: ListenerMode, closed: int
) -> None:
    monkeypatch.setattr(listener, "ListenConnection", Connected)
    monkeypatch.setattr(Connected, "closed", 0)
    database: Any = None
    made = Listener(database, print, print, print, lambda _: None)

    made.record_ping(ping)
    await made.step()

    assert (made.mode, Connected.closed) == (mode, closed)
