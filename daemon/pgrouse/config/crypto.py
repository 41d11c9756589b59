"""The table `[crypto]` of the configuration: which topics are encrypted, and where the keys are."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from pgrouse.config.alerts import TopicPattern
from pgrouse.config.duration import Duration, between
from pgrouse.config.section import S, Section

KEY_BYTES = 32
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
SOURCES = ("env", "file", "command")
WHERE_KEYS_BELONG = 'name its source instead: env = "NAME", file = "/path" or command = ["program"]'


def decode_key(text: str) -> bytes | None:
    """Return the key that a text encodes, with or without the = at its end; None if it is not a key."""
    given = text.strip().rstrip("=")
    try:
        key = base64.b64decode(given + "=" * (-len(given) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None
    return key if len(key) == KEY_BYTES else None


def _not_a_key(text: str) -> str:
    """Refuse a key in the file, without repeating it."""
    if decode_key(text) is not None:
        raise ValueError(f"holds a key itself, so anyone who reads the file could use it: {WHERE_KEYS_BELONG}")
    return text


def _key_name(text: str) -> str:
    _not_a_key(text)
    if not NAME.fullmatch(text):
        raise ValueError("is not a valid key name: 1 to 63 of A-Z a-z 0-9 . _ - and a letter or digit first")
    return text


def _variable(text: str) -> str:
    # Do not repeat the value: it may be a key in the wrong place.
    if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", text):
        raise ValueError("expected the name of an environment variable: letters, digits and _")
    return text


def _no_text(given: Any) -> Any:
    if isinstance(given, str):
        raise ValueError(f"a key must not be in the configuration: {WHERE_KEYS_BELONG}")  # noqa: TRY004 - as pydantic
    return given


KeyName = Annotated[str, AfterValidator(_key_name)]
NotAKey = AfterValidator(_not_a_key)


class CryptoKey(Section):
    """Where one key is: exactly one of env, file and command.

    A key is 32 bytes as base64, as `pgrouse crypto key` prints them.
    """

    env: Annotated[str, NotAKey, AfterValidator(_variable)] | None = None
    """An environment variable that contains it."""
    file: Annotated[str, NotAKey] | None = None
    """A file that contains it, relative to the configuration."""
    command: Annotated[list[Annotated[str, NotAKey]], Field(min_length=1)] | None = None
    """A program and its arguments; the program prints the key within 10 seconds. No shell."""

    @property
    def source(self) -> str:
        """Where it is, without the key."""
        if self.env is not None:
            return f"the environment variable {self.env}"
        # The arguments of a program may be secrets.
        return f"the file {self.file}" if self.file is not None else f"the program {_first_word(self.command)}"

    @model_validator(mode="before")
    @classmethod
    def _is_elsewhere(cls, given: Any) -> Any:
        if isinstance(given, dict) and not set(given) & set(SOURCES) and any(map(_is_key, given.values())):
            raise ValueError(f"a key must not be in the configuration: {WHERE_KEYS_BELONG}")
        return given

    @model_validator(mode="after")
    def _is_one_thing(self) -> CryptoKey:
        given = [name for name in SOURCES if getattr(self, name) is not None]
        if len(given) != 1:
            found = f", found {' and '.join(given)}" if given else ""
            raise ValueError(f"needs exactly one of {', '.join(SOURCES)}{found}")
        return self


def _first_word(command: list[str] | None) -> str:
    return next(iter((command or ["?"])[0].split()), "?")


def _is_key(value: Any) -> bool:
    return isinstance(value, str) and decode_key(value) is not None


class CryptoSettings(Section):
    """Encryption of payloads and other contents of messages; docs/reference/encryption.md."""

    current: KeyName | None = None
    """The key that encrypts, by its name under `crypto.keys`. The other keys only decrypt."""
    topics: list[TopicPattern] = Field(default_factory=list)
    """Topics whose messages are encrypted by publishers that use this configuration, as in `orders.*`. Encrypted
    messages are decrypted wherever their key is configured."""
    keys: dict[KeyName, Annotated[CryptoKey, BeforeValidator(_no_text)]] = Field(default_factory=dict)
    """The keys: a table `[crypto.keys.NAME]` for each."""
    unencrypted: Literal["accept", "reject"] = "accept"
    """What happens to an unencrypted message of an encrypted topic: it is processed, or rejected."""
    accept_from: dict[TopicPattern, list[TopicPattern]] = Field(default_factory=dict)
    """Topics that accept messages that were encrypted for other topics: `"invoices" = ["orders.*"]`. A topic also
    accepts messages of the topics in its `subscriptions` in the file."""
    error_detail: Literal["text", "type"] = "text"
    """What is stored and logged about an exception in an encrypted topic: its text and traceback, which may quote the
    payload, or only its type."""
    missing_key_delay: Annotated[Duration, between(S, 86400 * S)] = 60 * S
    """How long a message whose key is missing waits before it is tried again. This costs no attempt."""

    @model_validator(mode="after")
    def _has_its_key(self) -> CryptoSettings:
        if (self.topics or self.keys) and self.current is None:
            raise ValueError("current is missing: name the key that encrypts")
        if self.current is not None and self.current not in self.keys:
            raise ValueError(f'there is no key "{self.current}": add a table [crypto.keys."{self.current}"]')
        return self
