"""What a daemon does about encryption: decrypts messages right before their handlers, and encrypts what those leave behind."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog
from pydantic_core import from_json

from pgrouse import events
from pgrouse.crypto import envelope
from pgrouse.crypto.cipher import marked
from pgrouse.crypto.envelope import MARK
from pgrouse.crypto.envelope import Kind as Inside
from pgrouse.errors import DecryptionFailed, KeyMissing
from pgrouse.handlers.outcome import Defer, Ended, Kind, Outcome, clean, describe

if TYPE_CHECKING:
    from pgrouse.crypto.cipher import Cipher
    from pgrouse.config.crypto import Crypto
    from pgrouse.client.message import Message

log = structlog.get_logger()

CLEARED = "null"
NOT_KEPT = "what it said is not kept (crypto.errors)"
# So many pairs of topics and keys are told of; whoever invents names of keys shall not fill the memory.
MOST_TOLD = 1000


class Seals:
    """Opens what was encrypted, and seals what handlers leave.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, cipher: Cipher, settings: Crypto, clock: Callable[[], float] = time.monotonic) -> None:
        self.cipher, self.settings, self.clock = cipher, settings, clock
        self._told: dict[tuple[str, str], float] = {}

    def open(self, message: Message) -> Message | Ended:
        """Return a message as it was published; or how its attempt ends, since it cannot be read.

        Of a key that is not here only the operator can be the reason: the message is put back, with its attempt, and waits. What was changed
        is rejected.
        """
        if not (_is_envelope(message.body) or _is_marked(message)):
            return self._plain(message)
        try:
            return self._opened(message)
        except KeyMissing as missing:
            self._tell(message, missing)
            return Ended(message, Kind.DEFER, after=self.settings.missing_key_delay)
        except DecryptionFailed as error:
            return Ended(message, Kind.REJECT, error=f"this message cannot be decrypted: {error}")

    def open_all(self, messages: list[Message]) -> tuple[list[Message], list[Ended]]:
        """Return those that can be read, as they were published, and how the attempts of the others end."""
        opened: list[Message] = []
        closed: list[Ended] = []
        for message in messages:
            found = self.open(message)
            if isinstance(found, Ended):
                closed.append(found)
            else:
                opened.append(found)
        return opened, closed

    def close(self, ended: Ended) -> Ended:
        """Return the end of an attempt as it may be kept: what the handler made of what was encrypted is encrypted. Once is enough."""
        message = ended.message
        says_nothing = ended.output is None and ended.state is None and ended.error is None and not ended.remarks
        if says_nothing or ended.is_sealed or not self._is_secret(message):
            return ended
        return replace(
            ended,
            output=self.output(message, ended.output),
            state=self._sealed(message, ended.state, Inside.STATE),
            error=self._error(ended),
            remarks=ended.remarks if self.settings.errors == "text" else tuple((e, NOT_KEPT) for e, _ in ended.remarks),
            is_sealed=True,
        )

    def described(self, message: Message, error: BaseException) -> str:
        """Return what may be logged of an exception that changes nothing any more."""
        if self.settings.errors == "text" or not self._is_secret(message):
            return describe(error)
        # Not its traceback, which quotes what it was raised from.
        return clean(f"{type(error).__qualname__}: {error if isinstance(error, Outcome) else NOT_KEPT}")

    def output(self, message: Message, text: str | None) -> str | None:
        """Return an output as it may be kept."""
        return self._sealed(message, text, Inside.OUTPUT) if self._is_secret(message) else text

    def opened_output(self, message: Message, text: str) -> str:
        """Return the kept result of a step as it was; what is not encrypted as it is.

        Raises:
            Defer: its key is not here; no fault of the handler's, and the message waits for it as for the key of its payload.
            DecryptionFailed: it cannot be read here.
        """
        try:
            return self.cipher.opened_json(message.topic, text, Inside.OUTPUT)
        except KeyMissing as missing:
            self._tell(message, missing)
            raise Defer(self.settings.missing_key_delay) from missing

    def _opened(self, message: Message) -> Message:
        body = message.body
        if body is None:
            raise DecryptionFailed(f"its header {MARK} says that it is encrypted, and it is not")
        payload, plain = self.cipher.opened(message.topic, body)
        if self.settings.plain == "reject" and _is_plain_state(message.state):
            raise DecryptionFailed('its checkpoint is not encrypted (crypto.plain = "reject")')
        # From here on nothing else tells that it was encrypted, if whoever made its envelope gave it no header.
        headers = message.headers if _is_marked(message) else marked(message.headers, self.cipher.current)
        return self._with_state(message._replace(payload=payload, body=plain, headers=headers))

    def _with_state(self, message: Message) -> Message:
        if message.state is None:
            return message
        return message._replace(state=self.cipher.opened_json(message.topic, message.state, Inside.STATE))

    def _plain(self, message: Message) -> Message | Ended:
        if self.settings.plain == "reject" and self.cipher.covers(message.topic):
            said = 'this message is not encrypted, and its topic is: publish it with the key (crypto.plain = "reject")'
            return Ended(message, Kind.REJECT, error=said)
        try:
            return self._with_state(message)
        except KeyMissing as missing:
            self._tell(message, missing)
            return Ended(message, Kind.DEFER, after=self.settings.missing_key_delay)
        except DecryptionFailed as error:
            return Ended(message, Kind.REJECT, error=f"the checkpoint of this message cannot be decrypted: {error}")

    def _is_secret(self, message: Message) -> bool:
        return _is_marked(message) or _is_envelope(message.body) or self.cipher.covers(message.topic)

    def _sealed(self, message: Message, text: str | None, kind: Inside) -> str | None:
        if text is None or text == CLEARED:
            return text
        return self.cipher.sealed_json(message.topic, text, kind)

    def _error(self, ended: Ended) -> str | None:
        if ended.error is None or ended.error_type is None or self.settings.errors == "text":
            return ended.error
        return f"{ended.error_type}: {NOT_KEPT}"

    def _tell(self, message: Message, missing: KeyMissing) -> None:
        """Log that a key is missing, once in the time that its messages wait: there may be any number of them."""
        told, now = (message.topic, missing.key), self.clock()
        if now - self._told.get(told, -1e9) < self.settings.missing_key_delay.total_seconds():
            return
        if len(self._told) >= MOST_TOLD:
            self._told.clear()
        self._told[told] = now
        log.warning(
            events.CRYPTO_KEY_MISSING,
            message_id=message.id,
            topic=message.topic,
            key=missing.key,
            known=self.cipher.names,
            reason=str(missing),
            mend="configure the key and restart or reload; its messages wait",
        )


def _is_envelope(body: bytes | None) -> bool:
    return body is not None and body.startswith(envelope.MAGIC)


def _is_plain_state(state: str | None) -> bool:
    return state not in (None, CLEARED) and envelope.of_json(state) is None


def _is_marked(message: Message) -> bool:
    # What is cheap first: few headers are read for this.
    if message.headers is None or f'"{MARK}"' not in message.headers:
        return False
    try:
        return MARK in from_json(message.headers)
    except ValueError:  # nested deeper than it reads
        return True
