"""Locks of the queue that a session holds."""

from __future__ import annotations

from pgrouse.client.call import Call, binding


@binding
def lock_consumer(name: str) -> Call[bool]:
    """Reserve the name of a consumer for this session."""
