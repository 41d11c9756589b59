"""What a daemon reports to its handlers about their messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pgrouse.client.connection.database import Database
from pgrouse.client.message import Message
from pgrouse.config import config
from pgrouse.handlers.context import Context
from pgrouse.handlers.encryption import NoEncryption
from pgrouse.worker.execution.daemon_runtime import DaemonRuntime
from pgrouse.worker.execution.in_flight import InFlight
from pgrouse.worker.reporting.metrics_recorder import MetricsRecorder


def test_a_cancelled_message_is_lost_before_the_event_loop_removes_it(claimed: Callable[..., Message]) -> None:
    message, other = claimed(), claimed()
    in_flight = InFlight()
    in_flight.add([message, other], 0)

    async def observe() -> list[tuple[bool, bool]]:
        # No connection is made: the pools are never opened.
        runtime = DaemonRuntime(
            Database(config.DatabaseSettings(), "test"), in_flight, MetricsRecorder({}), NoEncryption()
        )
        in_flight.mark_cancelled([message])
        return [(context.cancelled, context.lost) for context in (Context(message, runtime), Context(other, runtime))]

    assert asyncio.run(observe()) == [(True, True), (False, False)]
