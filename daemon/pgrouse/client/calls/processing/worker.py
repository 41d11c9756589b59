"""The registry of workers."""

from __future__ import annotations

from collections.abc import Sequence

from pgrouse.client.call import Call, binding


@binding
def register_worker(
    name: str, host: str, pid: int, version: str, topics: Sequence[str], concurrency: int
) -> Call[None]:
    """Add a worker to the registry."""


@binding
def touch_worker(name: str, status: str, stopping: bool | None = None) -> Call[bool]:
    """Record a sign of life of a worker; return whether it is registered."""


@binding
def unregister_worker(name: str) -> Call[None]:
    """Remove a worker from the registry."""


@binding
def drain_worker(name: str) -> Call[bool]:
    """Ask a worker to drain; return whether it is registered."""


@binding
def scale_worker(name: str, concurrency: int | None = None, topic: str | None = None) -> Call[bool]:
    """Change how many handlers a worker runs at once, or messages of a topic; return whether it is registered."""


@binding
def touch_http_worker(name: str, host: str, topics: Sequence[str], limit: int) -> Call[bool]:
    """Record a sign of life of a worker over HTTP; return whether it was asked to drain."""


@binding
def touch_http_holders(ids: Sequence[int]) -> Call[None]:
    """Record a sign of life of the workers over HTTP that hold these messages."""
