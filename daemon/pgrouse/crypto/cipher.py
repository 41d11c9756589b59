"""Encrypts and decrypts the contents of messages with configured keys."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pgrouse.config.config import Config, load
from pgrouse.config.crypto import KEY_BYTES, NAME, decode_key
from pgrouse.crypto import envelope
from pgrouse.crypto.envelope import ENCRYPTED_BY, NONCE, SALT, ContentKind, EnvelopeHeader
from pgrouse.crypto.keys import accepted_topics, read_keys
from pgrouse.errors import ConfigError, DecryptionFailed, EncryptionKeyMissing, InvalidMessage
from pgrouse.values import jsonb

DLQ_SUFFIX = ".dlq"
PAYLOADS = frozenset({ContentKind.JSON, ContentKind.BYTES})


class Decrypted(NamedTuple):
    """The decrypted content of an envelope."""

    kind: ContentKind
    data: bytes


class Cipher:
    """Encrypts under one key and decrypts under any of several.

    Args:
        keys: by name; each is 32 bytes, or their base64.
        current: the name of the key that encrypts.
        topics: patterns of the topics that are encrypted, like `orders.*`; by default all.
        accept_from: topics that accept messages which were encrypted for other topics, as patterns.

    Raises:
        ConfigError: a name or a key cannot be used (the text names it, and never shows the key), or cryptography is not
            installed.
    """

    def __init__(
        self,
        keys: Mapping[str, bytes | str],
        current: str,
        topics: Iterable[str] = ("*",),
        accept_from: Mapping[str, Iterable[str]] | None = None,
    ) -> None:
        # A process without a cipher does not need the package.
        from pgrouse.crypto.encryption_key import EncryptionKey  # noqa: PLC0415 - extra crypto

        self._keys = {name: EncryptionKey(name, _secret(name, given)) for name, given in keys.items()}
        if current not in self._keys:
            raise ConfigError(f"there is no key {current!r:.80}: known are {', '.join(self._keys) or 'none'}")
        self._current = self._keys[current]
        self._covers = _pattern(topics)
        self._accept_from = [(_pattern([topic]), _pattern(others)) for topic, others in (accept_from or {}).items()]
        self._accepted: dict[tuple[str, str], bool] = {}

    @classmethod
    def from_config(cls, config: Config | Path | str | None = None) -> Cipher:
        """Return the cipher of a configuration, or of its file; by default of the usual file.

        Raises:
            ConfigError: it has no `[crypto]`, or one of the keys cannot be read.
        """
        settings = config if isinstance(config, Config) else load(None if config is None else Path(config))
        crypto = settings.crypto
        if crypto.current is None:
            raise ConfigError(f"{settings.path or 'the configuration'} has no [crypto]: add current, topics and keys")
        return cls(read_keys(settings), crypto.current, crypto.topics, accepted_topics(settings))

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
        return bool(self._covers.fullmatch(topic) or self._covers.fullmatch(topic.removesuffix(DLQ_SUFFIX)))

    def encrypt(
        self, topic: str, data: bytes, kind: ContentKind = ContentKind.BYTES, randomness: bytes | None = None
    ) -> bytes:
        """Return an envelope.

        randomness: salt and nonce, for test vectors only; reused for other data they reveal both.
        """
        drawn = os.urandom(SALT + NONCE) if randomness is None else randomness
        key = self._current
        header = EnvelopeHeader(kind, key.fingerprint, key.name, topic, drawn[:SALT], drawn[SALT:])
        return key.encrypt(header, data)

    def decrypt(self, data: bytes, topic: str | None = None, kinds: frozenset[ContentKind] = PAYLOADS) -> Decrypted:
        """Return the content of an envelope.

        Args:
            data: the envelope.
            topic: where the envelope was found; None = any topic.
            kinds: what it may contain.

        Raises:
            EncryptionKeyMissing: its key is not configured here, or another key has its name.
            DecryptionFailed: it is not an envelope, was changed, or was encrypted for another topic.
        """
        header = envelope.read_header(data)
        if header is None:
            raise DecryptionFailed("it is not an envelope: the encrypted data was changed or cut")
        key = self._keys.get(header.key)
        if key is None or key.fingerprint != header.fingerprint:
            raise EncryptionKeyMissing(header.key, is_another=key is not None)
        plain = key.decrypt(header, data)
        if header.kind not in kinds:
            raise DecryptionFailed(f"it is the encrypted {ContentKind(header.kind).name.lower()} of something else")
        if topic is not None and not self._is_accepted(header.topic, topic):
            raise DecryptionFailed(
                f"it was encrypted for topic {header.topic}, which {topic} does not take: "
                f"add it to the subscriptions of {topic}, or to crypto.accept_from"
            )
        return Decrypted(ContentKind(header.kind), plain)

    def accepts(self, home: str, topic: str) -> bool:
        """Whether a topic accepts data that was encrypted for another topic.

        Dead letters do, and so do the topics in `accept_from`.
        """
        if home in (topic, topic.removesuffix(DLQ_SUFFIX)):
            return True
        here = topic.removesuffix(DLQ_SUFFIX)
        return any(to.fullmatch(here) and homes.fullmatch(home) for to, homes in self._accept_from)

    def _is_accepted(self, home: str, topic: str) -> bool:
        if home == topic:
            return True
        known = self._accepted
        if len(known) > 10_000:  # noqa: PLR2004 - made-up topics must not fill the memory
            known.clear()
        if (home, topic) not in known:
            known[home, topic] = self.accepts(home, topic)
        return known[home, topic]

    def encrypt_columns(self, columns: dict[str, Any]) -> dict[str, Any]:
        """Return the columns of a new message, with payload or body encrypted if the topic is encrypted.

        Raises:
            InvalidMessage: it would be too large.
        """
        topic = columns["topic"]
        if not self.covers(topic):
            return columns
        payload: str | None = columns.get("payload")
        kind, data = (ContentKind.BYTES, columns["body"]) if payload is None else (ContentKind.JSON, payload.encode())
        body = self.encrypt(topic, data, kind)
        if len(body) > jsonb.MAX_BYTES:
            raise InvalidMessage(
                f"encrypted it has {len(body):,} bytes, {jsonb.MAX_BYTES:,} is the limit: "
                "store it elsewhere and publish where it is"
            )
        rest = {name: value for name, value in columns.items() if name != "payload"}
        return rest | {"body": body, "headers": mark_headers(columns.get("headers"), self.current)}

    def decrypt_payload(self, topic: str, body: bytes) -> tuple[str | None, bytes | None]:
        """Decrypt the body of a message; return its payload (as JSON text) and its body; one of them is None.

        Raises:
            EncryptionKeyMissing, DecryptionFailed: as decrypt.
        """
        kind, data = self.decrypt(body, topic)
        return (data.decode(), None) if kind is ContentKind.JSON else (None, data)

    def encrypt_json(self, topic: str, text: str, kind: ContentKind) -> str:
        """Encrypt a checkpoint or an output; return the JSON that is stored instead."""
        return envelope.to_json(self.encrypt(topic, text.encode(), kind), self.current)

    def decrypt_json(self, topic: str | None, text: str, kind: ContentKind) -> str:
        """Decrypt a checkpoint or an output; text that is not encrypted is returned unchanged.

        Raises:
            EncryptionKeyMissing, DecryptionFailed: as decrypt.
        """
        data = envelope.from_json(text)
        return text if data is None else self.decrypt(data, topic, frozenset({kind})).data.decode()

    def reencrypt(self, data: bytes) -> bytes:
        """Encrypt the content of an envelope again under the current key, for the same topic.

        Raises:
            EncryptionKeyMissing, DecryptionFailed: as decrypt.
        """
        header = envelope.read_header(data)
        opened = self.decrypt(data, kinds=frozenset(ContentKind))
        assert header is not None  # noqa: S101 - it was just decrypted
        return self.encrypt(header.topic, opened.data, opened.kind)

    def request_digests(self, digest: bytes) -> list[bytes]:
        """Return the keyed digests of a request, one per key, from its SHA-256.

        Without a key the request cannot be guessed.

        The first digest is stored. It uses the first key by name, so it stays the same when another key becomes
        current.
        """
        return [self._keys[name].request_digest(digest) for name in sorted(self._keys)]

    def is_current(self, header: EnvelopeHeader) -> bool:
        """Whether an envelope is already encrypted by the current key."""
        return header.fingerprint == self._current.fingerprint and header.key == self.current

    def has_key(self, name: str, fingerprint: bytes) -> bool:
        """Whether this key is configured here under this name."""
        return name in self._keys and self._keys[name].fingerprint == fingerprint

    def fingerprint(self, name: str) -> bytes:
        """Return the fingerprint of a key that is configured here."""
        return self._keys[name].fingerprint


def mark_headers(headers: str | None, key: str) -> str:
    """Return headers, as JSON text, with the additional header that names the key of the message."""
    mark = f'{{"{ENCRYPTED_BY}":"{key}"'
    if headers is None:
        return mark + "}"
    # Put it after the given headers: if two members have the same name, jsonb keeps the last.
    given = headers.rstrip().removesuffix("}").rstrip()
    return mark + "}" if given == "{" else f"{given},{mark[1:]}}}"


def _secret(name: str, given: bytes | str) -> bytes:
    if not NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r:.80} is not a valid key name: use 1 to 63 of A-Z a-z 0-9 . _ - and a letter or digit first"
        )
    secret = decode_key(given) if isinstance(given, str) else given
    if not isinstance(secret, bytes) or len(secret) != KEY_BYTES:
        raise ConfigError(f"key {name} is not {KEY_BYTES} bytes as base64: make one by `pgrouse crypto key`")
    return secret


def _pattern(patterns: Iterable[str]) -> re.Pattern[str]:
    """Return a regular expression that matches any of these patterns, with * for any characters."""
    each = ["[A-Za-z0-9._:-]*".join(map(re.escape, pattern.split("*"))) for pattern in patterns]
    return re.compile("|".join(f"(?:{one})" for one in each) or "(?!)")
