"""The lane of a daemon that tells of its work: its claims and settles are spans. Looks that find nothing are none."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from pgrouse.worker.claim_planner import Plan
from pgrouse.worker.claim_loop import Lane
from pgrouse.handlers.outcome import Ended
from pgrouse.client.worker_client import Exchange, Store
from pgrouse.telemetry.names import Operation
from pgrouse.telemetry.telemetry import Telemetry


class TracedLane(Lane):
    """A lane whose exchanges are spans.

    Args:
        telemetry: whom to tell.
        arguments: those of Lane.
    """

    def __init__(self, telemetry: Telemetry, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.telemetry = telemetry

    async def _exchange(self, store: Store, ended: list[Ended], plan: Plan) -> Exchange:
        began_ns = time.time_ns()
        try:
            got = await super()._exchange(store, ended, plan)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._tell_failure(store, began_ns, ended, plan, error)
            raise
        if ended:
            self.telemetry.settled(store.conn, began_ns, ended)
        if got.claimed:
            self.telemetry.claimed(store.conn, began_ns, got.claimed)
        return got

    def _tell_failure(self, store: Store, began_ns: int, ended: list[Ended], plan: Plan, error: BaseException) -> None:
        if ended:
            self.telemetry.failed(Operation.SETTLE, store.conn, began_ns, [each.message for each in ended], error)
        if plan.want is not None:
            self.telemetry.failed(Operation.RECEIVE, store.conn, began_ns, [], error)
