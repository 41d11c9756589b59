"""The envelope: the format of encrypted data in the database, and its readable header.

The header is `93 50 47 52`, version, kind, the lengths of the two names, the key's fingerprint (8 bytes), the name of
the key, the topic that it was encrypted for, a salt (16 bytes), a nonce (12 bytes). After it come the ciphertext and
its tag (16 bytes), which also authenticates the header.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

# The header of an encrypted message, and a member of an encrypted checkpoint or output. It names the key for people and
# for SQL.
ENCRYPTED_BY = "pgrouse-encrypted-by"
DATA = "data"
MAGIC = b"\x93PGR"
VERSION = 1
FINGERPRINT, SALT, NONCE, TAG = 8, 16, 12, 16
FIXED = len(MAGIC) + 4 + FINGERPRINT
# The largest header of an envelope.
MAX_HEADER_BYTES = FIXED + 63 + 200 + SALT + NONCE


class ContentKind(IntEnum):
    """The kinds of content of an envelope."""

    JSON = 1
    BYTES = 2
    STATE = 3
    OUTPUT = 4


@dataclass(frozen=True, slots=True)
class EnvelopeHeader:
    """The part of an envelope that is not encrypted.

    Attributes:
        kind: what it contains.
        fingerprint: identifies the key, whatever its name.
        key: the name of the key.
        topic: the topic that it was encrypted for.
        salt, nonce: random, different for each message.
    """

    kind: int
    fingerprint: bytes
    key: str
    topic: str
    salt: bytes
    nonce: bytes

    def __bytes__(self) -> bytes:
        key, topic = self.key.encode(), self.topic.encode()
        fixed = MAGIC + bytes((VERSION, self.kind, len(key), len(topic))) + self.fingerprint
        return fixed + key + topic + self.salt + self.nonce


def read_header(data: bytes) -> EnvelopeHeader | None:
    """Return the header of an envelope; None if this is not one. The ciphertext may be missing."""
    if len(data) < FIXED or not data.startswith(MAGIC) or data[4] != VERSION:
        return None
    of_key, of_topic = data[6], data[7]
    key_at = FIXED
    topic_at = key_at + of_key
    salt_at = topic_at + of_topic
    nonce_at = salt_at + SALT
    end = nonce_at + NONCE
    if not of_key or len(data) < end:
        return None
    try:
        key, topic = data[key_at:topic_at].decode("ascii"), data[topic_at:salt_at].decode("ascii")
    except UnicodeDecodeError:
        return None
    return EnvelopeHeader(data[5], data[8:FIXED], key, topic, data[salt_at:nonce_at], data[nonce_at:end])


def to_json(envelope: bytes, key: str) -> str:
    """Return an envelope as the JSON of a checkpoint or an output."""
    return json.dumps({ENCRYPTED_BY: key, DATA: base64.b64encode(envelope).decode()})


def from_json(text: str | None) -> bytes | None:
    """Return the envelope in a checkpoint or an output; None if there is none."""
    if text is None or f'"{ENCRYPTED_BY}"' not in text:
        return None
    try:
        return from_json_value(json.loads(text))
    except (ValueError, RecursionError):
        return None


def from_json_value(value: Any) -> bytes | None:
    """Return the envelope in a JSON value; None if there is none."""
    if not isinstance(value, dict) or value.keys() != {ENCRYPTED_BY, DATA} or not isinstance(value[DATA], str):
        return None
    try:
        return base64.b64decode(value[DATA], validate=True)
    except (binascii.Error, ValueError):
        return None


def describe(data: bytes, size: int | None = None) -> str | None:
    """Describe an envelope for people: `encrypted (key 2026, 118 bytes)`; None if it is not one.

    Args:
        data: the beginning of the envelope, at least MAX_HEADER_BYTES bytes if it is that long.
        size: how many bytes it has, if data is not all of it.
    """
    header = read_header(data)
    return None if header is None else f"encrypted (key {header.key}, {size or len(data):,} bytes)"


def describe_json(text: str | None) -> str | None:
    """Describe the envelope in a checkpoint or an output."""
    envelope = from_json(text)
    return None if envelope is None else describe(envelope)
