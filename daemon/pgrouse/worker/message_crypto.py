"""Encryption in a daemon: decrypts messages right before their handlers, and encrypts what handlers produce."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from pydantic_core import from_json

from pgrouse.client.processing.settlement import SettleKind, Settlement
from pgrouse.crypto import envelope
from pgrouse.crypto.cipher import mark_headers
from pgrouse.crypto.envelope import ENCRYPTED_BY, ContentKind
from pgrouse.errors import DecryptionFailed, EncryptionKeyMissing
from pgrouse.handlers.outcome import Defer, Outcome, describe
from pgrouse.logging import events
from pgrouse.logging.event_logger import log
from pgrouse.values.error_line import to_storable_text

if TYPE_CHECKING:
    from pgrouse.client.message import Message
    from pgrouse.config.crypto import CryptoSettings
    from pgrouse.crypto.cipher import Cipher


CLEARED = "null"
NOT_KEPT = "its text is not stored (crypto.error_detail)"
# For how many pairs of topic and key the last warning is remembered: made-up key names must not fill the memory.
MAX_WARNED = 1000


class MessageCrypto:
    """The Encryption of a worker with keys: decrypts messages, and encrypts what handlers produce.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, cipher: Cipher, settings: CryptoSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self.cipher, self.settings, self.clock = cipher, settings, clock
        self._warned_at: dict[tuple[str, str], float] = {}

    def decrypt(self, message: Message) -> Message | Settlement:
        """Return a message as it was published, or the end of its attempt if it cannot be decrypted.

        A missing key is the operator's mistake: the message is deferred without using up its attempt. A changed message
        is rejected.
        """
        if not (_is_envelope(message.body) or _is_marked(message)):
            return self._accept_plain(message)
        try:
            return self._decrypt_message(message)
        except EncryptionKeyMissing as missing:
            self._warn_missing_key(message, missing)
            return Settlement(message, SettleKind.DEFER, after=self.settings.missing_key_delay)
        except DecryptionFailed as error:
            return Settlement(message, SettleKind.REJECT, error=f"this message cannot be decrypted: {error}")

    def decrypt_all(self, messages: list[Message]) -> tuple[list[Message], list[Settlement]]:
        """Return the messages that can be decrypted, and the ends of the attempts of the others."""
        opened: list[Message] = []
        unreadable: list[Settlement] = []
        for message in messages:
            found = self.decrypt(message)
            if isinstance(found, Settlement):
                unreadable.append(found)
            else:
                opened.append(found)
        return opened, unreadable

    def encrypt_all(self, settlements: list[Settlement]) -> list[Settlement]:
        """Return the ends of attempts as they may be stored and logged.

        What the handler made of encrypted data is encrypted.
        """
        return [self._encrypt_settlement(each) for each in settlements]

    def _encrypt_settlement(self, ended: Settlement) -> Settlement:
        message = ended.message
        says_nothing = ended.output is None and ended.state is None and ended.error is None and not ended.warnings
        if says_nothing or not self._is_secret(message):
            return ended
        shows_errors = self.settings.error_detail == "text"
        return replace(
            ended,
            output=self.encrypt_output(message, ended.output),
            state=self._encrypt(message, ended.state, ContentKind.STATE),
            error=self._error_text(ended),
            warnings=ended.warnings if shows_errors else tuple((e, NOT_KEPT) for e, _ in ended.warnings),
            exception=ended.exception if shows_errors else None,
        )

    def keeps_text(self, message: Message) -> bool:
        """Return whether the text that a handler makes of this message may be stored: as that of its errors."""
        return self.settings.error_detail == "text" or not self._is_secret(message)

    def describe_error(self, message: Message, error: BaseException) -> str:
        """Return a text that may be logged about an exception that no longer has an effect."""
        if self.keeps_text(message):
            return describe(error)
        # Without its traceback, which quotes source lines and causes.
        return to_storable_text(f"{type(error).__qualname__}: {error if isinstance(error, Outcome) else NOT_KEPT}")

    def encrypt_output(self, message: Message, text: str | None) -> str | None:
        """Return an output as it may be stored."""
        return self._encrypt(message, text, ContentKind.OUTPUT) if self._is_secret(message) else text

    def decrypt_output(self, message: Message, text: str, topic: str | None = None) -> str:
        """Decrypt the stored result of a step, or of a predecessor.

        A result that is not encrypted is returned unchanged.

        Raises:
            Defer: its key is not known here. That is not the handler's fault, so the message waits.
            DecryptionFailed: it cannot be read here.
        """
        try:
            return self.cipher.decrypt_json(topic or message.topic, text, ContentKind.OUTPUT)
        except EncryptionKeyMissing as missing:
            self._warn_missing_key(message, missing)
            raise Defer(self.settings.missing_key_delay) from missing

    def _decrypt_message(self, message: Message) -> Message:
        body = message.body
        if body is None:
            raise DecryptionFailed(f"its header {ENCRYPTED_BY} says that it is encrypted, and it is not")
        payload, plain = self.cipher.decrypt_payload(message.topic, body)
        if self.settings.unencrypted == "reject" and _is_unencrypted_state(message.state):
            raise DecryptionFailed('its checkpoint is not encrypted (crypto.unencrypted = "reject")')
        # From here on only the header tells that it was encrypted. The publisher may not have set that header, so set
        # it here.
        headers = message.headers if _is_marked(message) else mark_headers(message.headers, self.cipher.current)
        return self._with_plain_state(message._replace(payload=payload, body=plain, headers=headers))

    def _with_plain_state(self, message: Message) -> Message:
        if message.state is None:
            return message
        return message._replace(state=self.cipher.decrypt_json(message.topic, message.state, ContentKind.STATE))

    def _accept_plain(self, message: Message) -> Message | Settlement:
        if self.settings.unencrypted == "reject" and self.cipher.covers(message.topic):
            reason = (
                "this message is not encrypted, and its topic is: publish it with the key (crypto.unencrypted = "
                '"reject")'
            )
            return Settlement(message, SettleKind.REJECT, error=reason)
        try:
            return self._with_plain_state(message)
        except EncryptionKeyMissing as missing:
            self._warn_missing_key(message, missing)
            return Settlement(message, SettleKind.DEFER, after=self.settings.missing_key_delay)
        except DecryptionFailed as error:
            return Settlement(
                message, SettleKind.REJECT, error=f"the checkpoint of this message cannot be decrypted: {error}"
            )

    def _is_secret(self, message: Message) -> bool:
        return _is_marked(message) or _is_envelope(message.body) or self.cipher.covers(message.topic)

    def _encrypt(self, message: Message, text: str | None, kind: ContentKind) -> str | None:
        if text is None or text == CLEARED:
            return text
        return self.cipher.encrypt_json(message.topic, text, kind)

    def _error_text(self, ended: Settlement) -> str | None:
        if ended.error is None or ended.error_type is None or self.settings.error_detail == "text":
            return ended.error
        return f"{ended.error_type}: {NOT_KEPT}"

    def _warn_missing_key(self, message: Message, missing: EncryptionKeyMissing) -> None:
        """Log that a key is missing, once per missing_key_delay: any number of messages may need it."""
        warned, now = (message.topic, missing.key), self.clock()
        if now - self._warned_at.get(warned, -1e9) < self.settings.missing_key_delay.total_seconds():
            return
        if len(self._warned_at) >= MAX_WARNED:
            self._warned_at.clear()
        self._warned_at[warned] = now
        log.warning(
            events.CRYPTO_KEY_MISSING,
            message_id=message.id,
            topic=message.topic,
            key=missing.key,
            known=self.cipher.names,
            reason=str(missing),
            fix="configure the key and restart or reload; its messages wait",
        )


def _is_envelope(body: bytes | None) -> bool:
    return body is not None and body.startswith(envelope.MAGIC)


def _is_unencrypted_state(state: str | None) -> bool:
    return state not in (None, CLEARED) and envelope.from_json(state) is None


def _is_marked(message: Message) -> bool:
    # Try the cheap test first: few headers need to be parsed.
    if message.headers is None or f'"{ENCRYPTED_BY}"' not in message.headers:
        return False
    try:
        return ENCRYPTED_BY in from_json(message.headers)
    except ValueError:  # nested too deeply for the parser
        return True
