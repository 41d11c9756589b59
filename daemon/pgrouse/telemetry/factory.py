"""Creates the parts of a daemon that record OpenTelemetry."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pgrouse.config import config
from pgrouse.telemetry import providers
from pgrouse.telemetry.telemetry import Telemetry
from pgrouse.telemetry.traced_claim_loop import TracedClaimLoop
from pgrouse.telemetry.traced_executor import TracedExecutor
from pgrouse.worker.claim_loop import ClaimLoop
from pgrouse.worker.executor import HandlerExecutor


class TelemetryFactory:
    """Creates the traced parts of one daemon; creating it sets the providers of the process.

    Args:
        settings: the section `[otel]`.
        worker: the daemon's name.

    Attributes:
        executor: creates the executor.
        claim_loop: creates a claim loop.
        shutdown: exports what is left, within the configured time; blocks.

    Raises:
        ConfigError: a package is missing, or the environment asks for an exporter that is not available.
    """

    def __init__(self, settings: config.OtelSettings, worker: str) -> None:
        self.shutdown = providers.set_providers(settings, worker).shutdown
        telemetry = Telemetry(worker)
        self.executor: Callable[..., HandlerExecutor] = partial(TracedExecutor, telemetry)
        self.claim_loop: Callable[..., ClaimLoop] = partial(TracedClaimLoop, telemetry)
