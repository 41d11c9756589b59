"""The claim loop with OpenTelemetry: its claims and settles are spans. Claims without messages are not."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from pgrouse.client.settlement import Settlement
from pgrouse.client.worker_client import TurnResult, WorkerClient
from pgrouse.telemetry.names import Operation
from pgrouse.telemetry.telemetry import Telemetry
from pgrouse.worker.claim_loop import ClaimLoop
from pgrouse.worker.claim_planner import TurnPlan


class TracedClaimLoop(ClaimLoop):
    """A claim loop whose claims and settles are spans.

    Args:
        telemetry: records the spans.
        arguments: those of the base class.
    """

    def __init__(self, telemetry: Telemetry, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.telemetry = telemetry

    async def _settle_and_claim(
        self, client: WorkerClient, settlements: list[Settlement], plan: TurnPlan
    ) -> TurnResult:
        began_ns = time.time_ns()
        try:
            result = await super()._settle_and_claim(client, settlements, plan)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._record_failure(client, began_ns, settlements, plan, error)
            raise
        if settlements:
            self.telemetry.record_settle(client.conn, began_ns, settlements)
        if result.claimed:
            self.telemetry.record_claim(client.conn, began_ns, result.claimed)
        return result

    def _record_failure(
        self, client: WorkerClient, began_ns: int, settlements: list[Settlement], plan: TurnPlan, error: BaseException
    ) -> None:
        if settlements:
            self.telemetry.record_failure(
                Operation.SETTLE, client.conn, began_ns, [each.message for each in settlements], error
            )
        if plan.request is not None:
            self.telemetry.record_failure(Operation.RECEIVE, client.conn, began_ns, [], error)
