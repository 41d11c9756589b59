"""The registry of workers."""

from __future__ import annotations

from pgrouse.client.call import Call, function_call, value


def drain_worker(name: str) -> Call[bool]:
    """Ask a worker to finish what runs and stop; whether the registry knows it."""
    return function_call("drain_worker", value, name=name)
