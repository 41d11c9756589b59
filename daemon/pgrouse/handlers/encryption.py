"""How a worker treats encrypted messages, and the worker that has no keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from pgrouse.client.message import Message
from pgrouse.client.processing.settlement import Settlement
from pgrouse.handlers.outcome import describe

if TYPE_CHECKING:
    from pgrouse.crypto.cipher import Cipher


class Encryption(Protocol):
    """Decrypts messages for their handlers, and encrypts what handlers produce."""

    @property
    def cipher(self) -> Cipher | None:
        """The cipher of published messages; None = they are not encrypted."""

    def decrypt_all(self, messages: list[Message]) -> tuple[list[Message], Sequence[Settlement]]:
        """Return the messages that can be decrypted, and the ends of the attempts of the others."""

    def encrypt_all(self, settlements: list[Settlement]) -> list[Settlement]:
        """Return the ends of attempts as they may be stored and logged."""

    def encrypt_output(self, message: Message, text: str | None) -> str | None:
        """Return an output as it may be stored."""

    def decrypt_output(self, message: Message, text: str, topic: str | None = None) -> str:
        """Return an output as it was before `encrypt_output`.

        topic: the topic of the output, if it is not the message's.
        """

    def keeps_text(self, message: Message) -> bool:
        """Return whether the text that a handler makes of this message may be stored as it is."""

    def describe_error(self, message: Message, error: BaseException) -> str:
        """Return the text to log for an exception that no longer has an effect."""


class NoEncryption:
    """The Encryption of a worker without keys: everything is stored as it is."""

    cipher = None

    def decrypt_all(self, messages: list[Message]) -> tuple[list[Message], Sequence[Settlement]]:
        """Return all messages."""
        return messages, ()

    def encrypt_all(self, settlements: list[Settlement]) -> list[Settlement]:
        """Return the settlements unchanged."""
        return settlements

    def encrypt_output(self, message: Message, text: str | None) -> str | None:
        """Return the output unchanged."""
        return text

    def decrypt_output(self, message: Message, text: str, topic: str | None = None) -> str:
        """Return the output unchanged."""
        return text

    def keeps_text(self, message: Message) -> bool:
        """Return True."""
        return True

    def describe_error(self, message: Message, error: BaseException) -> str:
        """Return its traceback."""
        return describe(error)
