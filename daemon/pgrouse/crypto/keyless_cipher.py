"""Stands for a cipher where the keys cannot be read: nothing of an encrypted topic is published, rather than readable for everybody."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

from pgrouse import events
from pgrouse.crypto.cipher import Cipher
from pgrouse.crypto.keys import cipher_of
from pgrouse.errors import ConfigError, PublishRefused

if TYPE_CHECKING:
    from pgrouse.config.config import Config

log = structlog.get_logger()


class Locked(Cipher):
    """Knows which topics are encrypted, and has no key for them."""

    def __init__(self, topics: list[str]) -> None:
        super().__init__({"none": bytes(32)}, "none", topics)

    def sealed(self, columns: dict[str, Any]) -> dict[str, Any]:
        """Return columns of other topics as they are.

        Raises:
            PublishRefused: the topic is encrypted.
        """
        if self.covers(columns["topic"]):
            raise PublishRefused(
                f"topic {columns['topic']} is encrypted, and this server could not read its key: its log says why"
            )
        return columns

    def digests(self, digest: bytes) -> list[bytes]:
        """Return the digest itself: there is no key, and nothing is published that is secret."""
        return [digest]


def cipher_or_lock(settings: Config) -> Cipher | None:
    """Return the cipher of a configuration, None if it has none. Where a key cannot be read that is logged, and what is returned encrypts nothing."""
    try:
        return cipher_of(settings)
    except ConfigError as error:
        log.error(events.CRYPTO_KEYS_UNREADABLE, reason=str(error), mend="nothing is published to encrypted topics")  # noqa: TRY400
        return Locked(settings.crypto.topics)
