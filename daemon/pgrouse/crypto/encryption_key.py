"""One key: encrypts and decrypts with AES-256-GCM, with a separate derived key for each message.

The derived key is HKDF-Expand of the configured key, with SHA-256 and the random salt of the message. The reason, and
how many messages one key may encrypt: docs/decisions/0017-a-key-for-each-message.md.
"""

from __future__ import annotations

import hmac
from typing import NoReturn

from pgrouse.crypto import envelope
from pgrouse.crypto.envelope import EnvelopeHeader
from pgrouse.errors import ConfigError, DecryptionFailed

try:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
except ModuleNotFoundError as error:
    if error.name != "cryptography":
        raise
    raise ConfigError("encryption needs cryptography: pip install 'pgrouse[crypto]'") from error

PURPOSE = b"pgrouse message 1 "
PURPOSE_OF_REQUEST = b"pgrouse request 1 "
PURPOSE_OF_FINGERPRINT = b"pgrouse fingerprint 1"
# The only block of HKDF-Expand: a key is as long as SHA-256.
FIRST_BLOCK = b"\x01"


class EncryptionKey:
    """One key. Only its name and its fingerprint can be seen."""

    __slots__ = ("_secret", "fingerprint", "name")

    def __init__(self, name: str, secret: bytes) -> None:
        self.name, self._secret = name, secret
        self.fingerprint = hmac.digest(secret, PURPOSE_OF_FINGERPRINT, "sha256")[: envelope.FINGERPRINT]

    def __repr__(self) -> str:
        return f"EncryptionKey({self.name!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key cannot be pickled: make the Cipher where it is used")

    def encrypt(self, header: EnvelopeHeader, data: bytes) -> bytes:
        """Return an envelope with this header."""
        public = bytes(header)
        return public + self._message_cipher(header.salt).encrypt(header.nonce, data, public)

    def decrypt(self, header: EnvelopeHeader, data: bytes) -> bytes:
        """Return the content of an envelope with this header.

        Raises:
            DecryptionFailed: it was changed.
        """
        public = bytes(header)
        try:
            return self._message_cipher(header.salt).decrypt(header.nonce, data[len(public) :], public)
        except InvalidTag:
            raise DecryptionFailed("the encrypted data was changed") from None

    def request_digest(self, digest: bytes) -> bytes:
        """Return the keyed digest that identifies a request."""
        return hmac.digest(self._secret, PURPOSE_OF_REQUEST + digest, "sha256")

    def _message_cipher(self, salt: bytes) -> AESGCM:
        return AESGCM(hmac.digest(self._secret, PURPOSE + salt + FIRST_BLOCK, "sha256"))
