"""What a daemon is built of that tells OpenTelemetry of its work."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pgrouse.config import config
from pgrouse.worker.executor import Crew
from pgrouse.worker.claim_loop import Lane
from pgrouse.telemetry import providers as export
from pgrouse.telemetry.traced_executor import TracedCrew
from pgrouse.telemetry.traced_claim_loop import TracedLane
from pgrouse.telemetry.telemetry import Telemetry


class Traced:
    """The traced parts of one daemon; making this sets the providers of its process.

    Args:
        settings: the section `[otel]`.
        worker: the daemon's name.

    Attributes:
        crew: makes the crew, as Crew does.
        lane: makes a lane, as Lane does.
        end: exports what is left, in the time that the configuration gives; blocks.

    Raises:
        ConfigError: a package is missing, or the environment wants an exporter that is not there.
    """

    def __init__(self, settings: config.Otel, worker: str) -> None:
        self.end = export.begin(settings, worker).end
        telemetry = Telemetry(worker)
        self.crew: Callable[..., Crew] = partial(TracedCrew, telemetry)
        self.lane: Callable[..., Lane] = partial(TracedLane, telemetry)
