"""Encrypts and decrypts what messages carry: AES-256-GCM, with a key of its own for each message.

That key is HKDF-Expand of the key that was configured, by SHA-256, with the random salt of the message. Why so, and how many messages one
key is good for: docs/decisions/0017-a-key-for-each-message.md.
"""

from __future__ import annotations

import hmac
import os
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from pgrouse import jsonb
from pgrouse.crypto import envelope
from pgrouse.crypto.envelope import MARK, NONCE, SALT, Head, Kind
from pgrouse.config.crypto import KEY_BYTES, NAME, decoded
from pgrouse.errors import ConfigError, DecryptionFailed, KeyMissing, PublishRefused

try:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
except ModuleNotFoundError as error:
    if error.name != "cryptography":
        raise
    raise ConfigError("encryption needs cryptography: pip install 'pgrouse[crypto]'") from error

if TYPE_CHECKING:
    from pathlib import Path

    from pgrouse.config.config import Config

DLQ = ".dlq"
PURPOSE = b"pgrouse message 1 "
PURPOSE_OF_REQUEST = b"pgrouse request 1 "
PURPOSE_OF_FINGERPRINT = b"pgrouse fingerprint 1"
# The first block of HKDF-Expand, and there is no other: a key is as long as SHA-256.
FIRST_BLOCK = b"\x01"
PAYLOADS = frozenset({Kind.JSON, Kind.BYTES})


class Opened(NamedTuple):
    """What was in an envelope."""

    kind: Kind
    data: bytes


class Key:
    """One key. Nothing of it can be seen but its name and its fingerprint."""

    __slots__ = ("_secret", "fingerprint", "name")

    def __init__(self, name: str, secret: bytes) -> None:
        self.name, self._secret = name, secret
        self.fingerprint = hmac.digest(secret, PURPOSE_OF_FINGERPRINT, "sha256")[: envelope.FINGERPRINT]

    def __repr__(self) -> str:
        return f"Key({self.name!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key cannot be pickled: make the Cipher where it is used")

    def of_message(self, salt: bytes) -> AESGCM:
        """Return the cipher of one message."""
        return AESGCM(hmac.digest(self._secret, PURPOSE + salt + FIRST_BLOCK, "sha256"))

    def of_request(self, digest: bytes) -> bytes:
        """Return what a request is known by."""
        return hmac.digest(self._secret, PURPOSE_OF_REQUEST + digest, "sha256")


class Cipher:
    """Encrypts under one key and decrypts under any of several.

    Args:
        keys: by name, each 32 bytes, or these as base64.
        current: the name of the one that encrypts.
        topics: patterns of the topics that are encrypted, as `orders.*`; all unless given.
        accept: topics that take what was encrypted for others, by patterns of their names.

    Raises:
        ConfigError: a name or a key cannot be used; says which, and nothing of the key.
    """

    def __init__(
        self,
        keys: Mapping[str, bytes | str],
        current: str,
        topics: Iterable[str] = ("*",),
        accept: Mapping[str, Iterable[str]] | None = None,
    ) -> None:
        self._keys = {name: Key(name, _secret(name, given)) for name, given in keys.items()}
        if current not in self._keys:
            raise ConfigError(f"there is no key {current!r:.80}: known are {', '.join(self._keys) or 'none'}")
        self._current = self._keys[current]
        self._covers = _pattern(topics)
        self._accept = [(_pattern([topic]), _pattern(others)) for topic, others in (accept or {}).items()]
        self._accepted: dict[tuple[str, str], bool] = {}

    @classmethod
    def from_config(cls, config: Config | Path | str | None = None) -> Cipher:
        """Return the cipher that a configuration describes, or its file; the usual one unless given.

        Raises:
            ConfigError: it has no `[crypto]`, or one of the keys cannot be read.
        """
        from pgrouse.crypto.keys import cipher_of_file  # noqa: PLC0415 - brings the configuration along

        return cipher_of_file(config)

    def __repr__(self) -> str:
        return f"Cipher({', '.join(self._keys)}; current: {self.current})"

    @property
    def current(self) -> str:
        """The name of the key that encrypts."""
        return self._current.name

    @property
    def names(self) -> list[str]:
        """The names of all keys."""
        return list(self._keys)

    def covers(self, topic: str) -> bool:
        """Whether messages of this topic are encrypted."""
        return bool(self._covers.fullmatch(topic) or self._covers.fullmatch(topic.removesuffix(DLQ)))

    def encrypt(self, topic: str, data: bytes, kind: Kind = Kind.BYTES, randomness: bytes | None = None) -> bytes:
        """Return an envelope. randomness: salt and nonce, for test vectors; used twice with other data they give both away."""
        drawn = os.urandom(SALT + NONCE) if randomness is None else randomness
        key = self._current
        head = Head(kind, key.fingerprint, key.name, topic, drawn[:SALT], drawn[SALT:])
        public = bytes(head)
        return public + key.of_message(head.salt).encrypt(head.nonce, data, public)

    def decrypt(self, data: bytes, topic: str | None = None, kinds: frozenset[Kind] = PAYLOADS) -> Opened:
        """Return what is in an envelope.

        Args:
            data: the envelope.
            topic: where it was found; None = wherever.
            kinds: what may be inside.

        Raises:
            KeyMissing: its key is not among those known here, or another one has its name.
            DecryptionFailed: it is none, or not as it was made, or is not meant for this topic.
        """
        head = envelope.read(data)
        if head is None:
            raise DecryptionFailed("it is no envelope: what was encrypted was changed, or cut")
        key = self._keys.get(head.key)
        if key is None or key.fingerprint != head.fingerprint:
            raise KeyMissing(head.key, is_another=key is not None)
        public = bytes(head)
        try:
            plain = key.of_message(head.salt).decrypt(head.nonce, data[len(public) :], public)
        except InvalidTag:
            raise DecryptionFailed("it is not what was encrypted: something changed it") from None
        if head.kind not in kinds:
            raise DecryptionFailed(f"it is the encrypted {Kind(head.kind).name.lower()} of something else")
        if topic is not None and not self._is_accepted(head.topic, topic):
            raise DecryptionFailed(
                f"it was encrypted for topic {head.topic}, which {topic} does not take: add it to the subscriptions of {topic}, or to crypto.accept"
            )
        return Opened(Kind(head.kind), plain)

    def accepts(self, home: str, topic: str) -> bool:
        """Whether what was encrypted for one topic is taken by another: its dead letters are, and what `accept` names."""
        if home in (topic, topic.removesuffix(DLQ)):
            return True
        here = topic.removesuffix(DLQ)
        return any(to.fullmatch(here) and homes.fullmatch(home) for to, homes in self._accept)

    def _is_accepted(self, home: str, topic: str) -> bool:
        if home == topic:
            return True
        known = self._accepted
        if len(known) > 10_000:  # noqa: PLR2004 - whoever invents topics shall not fill the memory
            known.clear()
        if (home, topic) not in known:
            known[home, topic] = self.accepts(home, topic)
        return known[home, topic]

    def sealed(self, columns: dict[str, Any]) -> dict[str, Any]:
        """Return the columns of a new message with its payload or body encrypted, if its topic is; as they are if not.

        Raises:
            PublishRefused: it would be too large.
        """
        topic = columns["topic"]
        if not self.covers(topic):
            return columns
        payload: str | None = columns.get("payload")
        kind, data = (Kind.BYTES, columns["body"]) if payload is None else (Kind.JSON, payload.encode())
        body = self.encrypt(topic, data, kind)
        if len(body) > jsonb.MAX_BYTES:
            raise PublishRefused(
                f"encrypted it has {len(body):,} bytes, {jsonb.MAX_BYTES:,} is the limit: store it elsewhere and publish where it is"
            )
        rest = {name: value for name, value in columns.items() if name != "payload"}
        return rest | {"body": body, "headers": marked(columns.get("headers"), self.current)}

    def opened(self, topic: str, body: bytes) -> tuple[str | None, bytes | None]:
        """Return payload (as JSON text) and body of what lies encrypted in a message; one of them is None.

        Raises:
            KeyMissing, DecryptionFailed: as decrypt.
        """
        kind, data = self.decrypt(body, topic)
        return (data.decode(), None) if kind is Kind.JSON else (None, data)

    def sealed_json(self, topic: str, text: str, kind: Kind) -> str:
        """Encrypt a checkpoint or an output; return the JSON that is kept instead."""
        return envelope.as_json(self.encrypt(topic, text.encode(), kind), self.current)

    def opened_json(self, topic: str | None, text: str, kind: Kind) -> str:
        """Return a checkpoint or an output as it was; what is not encrypted as it is.

        Raises:
            KeyMissing, DecryptionFailed: as decrypt.
        """
        data = envelope.of_json(text)
        return text if data is None else self.decrypt(data, topic, frozenset({kind})).data.decode()

    def renewed(self, data: bytes) -> bytes:
        """Return an envelope with the same in it under the current key; for the same topic, whatever that is.

        Raises:
            KeyMissing, DecryptionFailed: as decrypt.
        """
        head = envelope.read(data)
        opened = self.decrypt(data, kinds=frozenset(Kind))
        assert head is not None  # noqa: S101 - it was just decrypted
        return self.encrypt(head.topic, opened.data, opened.kind)

    def digests(self, digest: bytes) -> list[bytes]:
        """Return what a request is known by, of its SHA-256: under each key, so that nobody without one can try what was asked.

        The first is what is kept, and stays the same when another key becomes current: it is that of the first key by name.
        """
        return [self._keys[name].of_request(digest) for name in sorted(self._keys)]

    def is_current(self, head: Head) -> bool:
        """Whether an envelope is under the current key already."""
        return head.fingerprint == self._current.fingerprint and head.key == self.current

    def knows(self, name: str, fingerprint: bytes) -> bool:
        """Whether this very key is here, under this name."""
        return name in self._keys and self._keys[name].fingerprint == fingerprint

    def fingerprint(self, name: str) -> bytes:
        """Return the fingerprint of a key that is here."""
        return self._keys[name].fingerprint


def marked(headers: str | None, key: str) -> str:
    """Return headers, as JSON text, with the mark that says which key the message is encrypted by."""
    mark = f'{{"{MARK}":"{key}"'
    if headers is None:
        return mark + "}"
    # Behind those that were given: of two members of one name jsonb keeps the last.
    given = headers.rstrip().removesuffix("}").rstrip()
    return mark + "}" if given == "{" else f"{given},{mark[1:]}}}"


def _secret(name: str, given: bytes | str) -> bytes:
    if not NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r:.80} is no name of a key: use 1 to 63 of A-Z a-z 0-9 . _ - and a letter or digit first"
        )
    secret = decoded(given) if isinstance(given, str) else given
    if not isinstance(secret, bytes) or len(secret) != KEY_BYTES:
        raise ConfigError(f"key {name} is not {KEY_BYTES} bytes as base64: make one by `pgrouse crypto key`")
    return secret


def _pattern(patterns: Iterable[str]) -> re.Pattern[str]:
    """Return what matches any of these, in which * stands for any characters; nothing if there are none."""
    each = ["[A-Za-z0-9._:-]*".join(map(re.escape, pattern.split("*"))) for pattern in patterns]
    return re.compile("|".join(f"(?:{one})" for one in each) or "(?!)")
