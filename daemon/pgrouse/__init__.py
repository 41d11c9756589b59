"""pgrouse: a message queue and worker daemon in PostgreSQL.

Publishers need `publish` and `publish_many`; handlers need `Context` and the outcomes. Everything is imported when first used, so that
the command line starts fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pgrouse.context import Context
    from pgrouse.errors import LockLost, PgrouseError, PublishRefused
    from pgrouse.new_message import NewMessage
    from pgrouse.outcome import Defer, Fail, Reject, Retry
    from pgrouse.publishing import publish, publish_many

__all__ = [
    "Context",
    "Defer",
    "Fail",
    "LockLost",
    "NewMessage",
    "PgrouseError",
    "PublishRefused",
    "Reject",
    "Retry",
    "publish",
    "publish_many",
]

_HOMES = {
    "Context": "context",
    "Defer": "outcome",
    "Fail": "outcome",
    "LockLost": "errors",
    "NewMessage": "new_message",
    "PgrouseError": "errors",
    "PublishRefused": "errors",
    "Reject": "outcome",
    "Retry": "outcome",
    "publish": "publishing",
    "publish_many": "publishing",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module 'pgrouse' has no attribute {name!r}")
    return getattr(import_module(f"pgrouse.{_HOMES[name]}"), name)
