"""pgrouse: a message queue and worker daemon in PostgreSQL.

Publishers need `publish`, `publish_many` and `wait_for`; handlers need `Context` and the outcomes; operators need `Client`. Everything is
imported when first used, so that the command line starts fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pgrouse.client.async_client import AsyncClient
    from pgrouse.handlers.batch import BatchContext, Item
    from pgrouse.client.client import Client
    from pgrouse.handlers.context import Context
    from pgrouse.crypto.cipher import Cipher
    from pgrouse.errors import (
        DecryptionFailed,
        InvalidPayload,
        KeyMissing,
        KeyTaken,
        LockLost,
        NotAdmitted,
        PayloadTooLarge,
        PgrouseError,
        PublishRateExceeded,
        PublishRefused,
        StepRefused,
        TopicFull,
        TopicNotRegistered,
        TopicReserved,
        UnknownMessage,
        UnknownPredecessor,
    )
    from pgrouse.publishing.new_message import NewMessage
    from pgrouse.handlers.outcome import Defer, Fail, Reject, Retry
    from pgrouse.publishing.publish import Published, publish, publish_many
    from pgrouse.client.wait_for import Ending, wait_for

__all__ = [
    "AsyncClient",
    "BatchContext",
    "Cipher",
    "Client",
    "Context",
    "DecryptionFailed",
    "Defer",
    "Ending",
    "Fail",
    "InvalidPayload",
    "Item",
    "KeyMissing",
    "KeyTaken",
    "LockLost",
    "NewMessage",
    "NotAdmitted",
    "PayloadTooLarge",
    "PgrouseError",
    "PublishRateExceeded",
    "PublishRefused",
    "Published",
    "Reject",
    "Retry",
    "StepRefused",
    "TopicFull",
    "TopicNotRegistered",
    "TopicReserved",
    "UnknownMessage",
    "UnknownPredecessor",
    "publish",
    "publish_many",
    "wait_for",
]

_HOMES = {
    "AsyncClient": "async_client",
    "BatchContext": "batch",
    "Cipher": "crypto.cipher",
    "Client": "client",
    "Context": "context",
    "DecryptionFailed": "errors",
    "Defer": "outcome",
    "Ending": "waiting",
    "Fail": "outcome",
    "InvalidPayload": "errors",
    "Item": "batch",
    "KeyMissing": "errors",
    "KeyTaken": "errors",
    "LockLost": "errors",
    "NewMessage": "new_message",
    "NotAdmitted": "errors",
    "PayloadTooLarge": "errors",
    "PgrouseError": "errors",
    "PublishRateExceeded": "errors",
    "PublishRefused": "errors",
    "Published": "publishing",
    "Reject": "outcome",
    "Retry": "outcome",
    "StepRefused": "errors",
    "TopicFull": "errors",
    "TopicNotRegistered": "errors",
    "TopicReserved": "errors",
    "UnknownMessage": "errors",
    "UnknownPredecessor": "errors",
    "publish": "publishing",
    "publish_many": "publishing",
    "wait_for": "waiting",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module 'pgrouse' has no attribute {name!r}")
    return getattr(import_module(f"pgrouse.{_HOMES[name]}"), name)
