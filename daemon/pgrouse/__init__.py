"""pgrouse: a message queue and worker daemon in PostgreSQL.

Publishers need `publish`, `publish_many` and `wait_for`; handlers need `Context` and the outcomes; operators need `Client`. Everything is
imported when first used, so that the command line starts fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pgrouse.client.async_client import AsyncClient
    from pgrouse.client.client import Client
    from pgrouse.client.wait_for import MessageResult, wait_for
    from pgrouse.crypto.cipher import Cipher
    from pgrouse.errors import (
        DecryptionFailed,
        EncryptionKeyMissing,
        InvalidMessage,
        InvalidPayload,
        InvalidStep,
        KeyTaken,
        LockLost,
        MessageNotFound,
        PayloadTooLarge,
        PgrouseError,
        PredecessorNotFound,
        PublishRateExceeded,
        PublishRejected,
        TopicClosed,
        TopicFull,
        TopicReserved,
    )
    from pgrouse.handlers.batch import BatchContext, Item
    from pgrouse.handlers.context import Context
    from pgrouse.handlers.outcome import Defer, Fail, Reject, Retry
    from pgrouse.publishing.new_message import NewMessage
    from pgrouse.publishing.publish import publish, publish_many
    from pgrouse.publishing.published import Published

__all__ = [
    "AsyncClient",
    "BatchContext",
    "Cipher",
    "Client",
    "Context",
    "DecryptionFailed",
    "Defer",
    "EncryptionKeyMissing",
    "Fail",
    "InvalidMessage",
    "InvalidPayload",
    "InvalidStep",
    "Item",
    "KeyTaken",
    "LockLost",
    "MessageNotFound",
    "MessageResult",
    "NewMessage",
    "PayloadTooLarge",
    "PgrouseError",
    "PredecessorNotFound",
    "PublishRateExceeded",
    "PublishRejected",
    "Published",
    "Reject",
    "Retry",
    "TopicClosed",
    "TopicFull",
    "TopicReserved",
    "publish",
    "publish_many",
    "wait_for",
]

_MODULES = {
    "AsyncClient": "client.async_client",
    "BatchContext": "handlers.batch",
    "Cipher": "crypto.cipher",
    "Client": "client.client",
    "Context": "handlers.context",
    "DecryptionFailed": "errors",
    "Defer": "handlers.outcome",
    "EncryptionKeyMissing": "errors",
    "Fail": "handlers.outcome",
    "InvalidMessage": "errors",
    "InvalidPayload": "errors",
    "InvalidStep": "errors",
    "Item": "handlers.batch",
    "KeyTaken": "errors",
    "LockLost": "errors",
    "MessageResult": "client.wait_for",
    "NewMessage": "publishing.new_message",
    "PayloadTooLarge": "errors",
    "PgrouseError": "errors",
    "PredecessorNotFound": "errors",
    "PublishRateExceeded": "errors",
    "PublishRejected": "errors",
    "Published": "publishing.published",
    "Reject": "handlers.outcome",
    "Retry": "handlers.outcome",
    "TopicFull": "errors",
    "TopicClosed": "errors",
    "TopicReserved": "errors",
    "MessageNotFound": "errors",
    "publish": "publishing.publish",
    "publish_many": "publishing.publish",
    "wait_for": "client.wait_for",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module 'pgrouse' has no attribute {name!r}")
    return getattr(import_module(f"pgrouse.{_MODULES[name]}"), name)
