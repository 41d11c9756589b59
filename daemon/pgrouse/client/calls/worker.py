"""The registry of workers."""

from __future__ import annotations

from collections.abc import Sequence

from pgrouse.client.call import Call, bigints, function_call, nothing, value


def register_worker(
    name: str, host: str, pid: int, version: str, topics: Sequence[str], concurrency: int
) -> Call[None]:
    """Add a worker to the registry."""
    return function_call(
        "register_worker",
        nothing,
        name=name,
        host=host,
        pid=pid,
        version=version,
        topics=list(topics),
        concurrency=concurrency,
    )


def touch_worker(name: str, status: str, stopping: bool | None = None) -> Call[bool]:
    """Record a sign of life of a worker; return whether it is registered."""
    return function_call("touch_worker", value, name=name, status=status, stopping=stopping)


def unregister_worker(name: str) -> Call[None]:
    """Remove a worker from the registry."""
    return function_call("unregister_worker", nothing, name=name)


def drain_worker(name: str) -> Call[bool]:
    """Ask a worker to drain; return whether it is registered."""
    return function_call("drain_worker", value, name=name)


def scale_worker(name: str, concurrency: int | None = None) -> Call[bool]:
    """Change how many handlers a worker runs at once; return whether it is registered."""
    return function_call("scale_worker", value, name=name, concurrency=concurrency)


def touch_http_worker(name: str, host: str, topics: Sequence[str], limit: int) -> Call[bool]:
    """Record a sign of life of a worker over HTTP; return whether it was asked to drain."""
    return function_call("touch_http_worker", value, name=name, host=host, topics=list(topics), limit=limit)


def touch_http_holders(ids: Sequence[int]) -> Call[None]:
    """Record a sign of life of the workers over HTTP that hold these messages."""
    return function_call("touch_http_holders", nothing, ids=bigints(ids))
