"""Replaces the cipher if the keys cannot be read.

It refuses to publish to encrypted topics instead of publishing plain text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pgrouse.crypto.cipher import Cipher
from pgrouse.crypto.configured_cipher import load_cipher
from pgrouse.errors import ConfigError, InvalidMessage
from pgrouse.logging import events
from pgrouse.logging.event_logger import log

if TYPE_CHECKING:
    from pgrouse.config.config import Config


class KeylessCipher(Cipher):
    """Knows which topics are encrypted, and has no key for them."""

    def __init__(self, topics: list[str]) -> None:
        super().__init__({"none": bytes(32)}, "none", topics)

    def encrypt_columns(self, columns: dict[str, Any]) -> dict[str, Any]:
        """Return the columns of messages of other topics unchanged.

        Raises:
            InvalidMessage: the topic is encrypted.
        """
        if self.covers(columns["topic"]):
            raise InvalidMessage(
                f"topic {columns['topic']} is encrypted, and this server could not read its key: its log says why"
            )
        return columns

    def request_digests(self, digest: bytes) -> list[bytes]:
        """Return the digest itself: there is no key, and nothing secret is published."""
        return [digest]


def load_cipher_or_keyless(settings: Config) -> Cipher | None:
    """Return the cipher of a configuration, None if it has none.

    If a key cannot be read, log that and return a KeylessCipher.
    """
    try:
        return load_cipher(settings)
    except ConfigError as error:
        log.error(  # noqa: TRY400
            events.CRYPTO_KEYS_UNREADABLE, reason=str(error), fix="nothing is published to encrypted topics"
        )
        return KeylessCipher(settings.crypto.topics)
