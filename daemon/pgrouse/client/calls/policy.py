"""Policies of topics and channels."""

from __future__ import annotations

from pgrouse.client.call import Call, binding


@binding
def lock_policies() -> Call[None]:
    """Keep others from changing policies until the transaction ends."""
