"""The health of a daemon: what /livez, /readyz and the metrics report.

Live: the event loop and the heartbeat's thread respond. An unreachable database is no reason to kill the process.
Ready: it receives notifications, it claims, the database answers, and it is not shutting down.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from pgrouse.metrics.health import HealthCheck, LoopMonitor
from pgrouse.worker.execution.executor import HandlerExecutor
from pgrouse.worker.loop.claim_loop import TURN_TIMEOUT_S
from pgrouse.worker.loop.claim_planner import ClaimPlanner
from pgrouse.worker.loop.heartbeat import NO_ANSWER_TIMEOUT_S, REGISTRY_INTERVAL_S, Heartbeat
from pgrouse.worker.loop.listener import Listener, ListenerMode

# After this many missed registry updates the database counts as unreachable.
MAX_MISSED_UPDATES = 3
# The poll interval has a jitter of a fifth, and the claim after the poll may wait for a lock.
POLL_JITTER = 1.2


@dataclass(frozen=True)
class DaemonParts:
    """The parts of a running daemon that are checked.

    Attributes:
        poll_s: the longest time between two claims, in seconds.
    """

    listener: Listener
    heartbeat: Heartbeat
    planner: ClaimPlanner
    executor: HandlerExecutor
    poll_s: float


class HealthProbe:
    """The health of one daemon. Thread-safe.

    Args:
        liveness_timeout_s: a loop that does not respond for this long counts as dead, in seconds.
        heartbeat_grace_s: how much longer one beat may take: the time to connect.

    Attributes:
        parts: set when the daemon has started its loops.
        draining: set when the daemon is asked to stop.
    """

    def __init__(self, liveness_timeout_s: float, heartbeat_grace_s: float) -> None:
        self.liveness_timeout_s, self.heartbeat_grace_s = liveness_timeout_s, heartbeat_grace_s
        self.loop_monitor = LoopMonitor()
        self.parts: DaemonParts | None = None
        self.draining = False
        self._began = time.monotonic()

    @property
    def listener_mode(self) -> ListenerMode:
        """Whether notifications arrive."""
        return ListenerMode.CONNECTING if self.parts is None else self.parts.listener.mode

    @property
    def since_seen_s(self) -> float:
        """How long ago the database last confirmed the registry entry, in seconds; since the start, if never."""
        last_seen_at = 0.0 if self.parts is None else self.parts.heartbeat.last_seen_at
        return time.monotonic() - (last_seen_at or self._began)

    def live(self) -> list[HealthCheck]:
        """Return the checks whose failure only a new process can fix."""
        lag_s = self.loop_monitor.lag_s
        loop = HealthCheck("event_loop", lag_s < self.liveness_timeout_s, _since("turns", "has not turned", lag_s))
        if self.parts is None:
            return [loop]
        beat_age_s = self.parts.heartbeat.beat_age_s
        limit_s = self.liveness_timeout_s + self.heartbeat_grace_s + NO_ANSWER_TIMEOUT_S
        return [loop, HealthCheck("heartbeat", beat_age_s < limit_s, _since("beats", "has not beaten", beat_age_s))]

    def ready(self) -> list[HealthCheck]:
        """Return the checks that must pass for the daemon to do its work, including those of `live`."""
        draining = HealthCheck(
            "draining", not self.draining, "stops: it claims nothing more" if self.draining else "no"
        )
        if self.parts is None:
            return [*self.live(), HealthCheck("database", ok=False, detail="has not answered yet"), draining]
        return [
            *self.live(),
            self._database(self.parts),
            self._listener(self.parts),
            self._claims(self.parts),
            draining,
        ]

    def _database(self, parts: DaemonParts) -> HealthCheck:
        ok = not parts.heartbeat.is_failing and self.since_seen_s < MAX_MISSED_UPDATES * REGISTRY_INTERVAL_S
        return HealthCheck("database", ok, f"took the last sign of life {self.since_seen_s:.1f} s ago")

    def _listener(self, parts: DaemonParts) -> HealthCheck:
        return HealthCheck("listener", parts.listener.mode is ListenerMode.LISTENING, parts.listener.mode.value)

    def _claims(self, parts: DaemonParts) -> HealthCheck:
        age_s = time.monotonic() - parts.planner.last_claim_at
        is_full = parts.executor.capacity().is_empty
        ok = is_full or self.draining or age_s < POLL_JITTER * parts.poll_s + TURN_TIMEOUT_S
        return HealthCheck("claims", ok, f"last claim {age_s:.1f} s ago{', no free slots' if is_full else ''}")


def _since(well: str, badly: str, seconds: float) -> str:
    return f"{badly} for {seconds:.1f} s" if seconds >= 1 else well
