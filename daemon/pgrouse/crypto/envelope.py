"""The envelope: how what is encrypted lies in the database, and what of it everybody can read.

`93 50 47 52`, version, kind, the lengths of the two names, the key's fingerprint (8 bytes), the name of the key, the topic that it was encrypted for, a salt
(16 bytes), a nonce (12 bytes): the head. Behind it the ciphertext and its tag (16 bytes), which vouches for every byte of the head too.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

# What tells people and SQL: a header of the message, and a member of an encrypted checkpoint or output.
MARK = "pgrouse-encrypted-by"
DATA = "data"
MAGIC = b"\x93PGR"
VERSION = 1
FINGERPRINT, SALT, NONCE, TAG = 8, 16, 12, 16
FIXED = len(MAGIC) + 4 + FINGERPRINT
# So much larger than what is in it is an envelope at most.
MOST_HEAD = FIXED + 63 + 200 + SALT + NONCE


class Kind(IntEnum):
    """What is inside."""

    JSON = 1
    BYTES = 2
    STATE = 3
    OUTPUT = 4


@dataclass(frozen=True, slots=True)
class Head:
    """What everybody can read of an envelope.

    Attributes:
        kind: what is inside.
        fingerprint: which key it is, whatever its name.
        key: the name of the key.
        topic: the topic that it was encrypted for.
        salt, nonce: random, for each message anew.
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


def read(data: bytes) -> Head | None:
    """Return the head of an envelope, of whose ciphertext nothing need be there; None if this is none."""
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
    return Head(data[5], data[8:FIXED], key, topic, data[salt_at:nonce_at], data[nonce_at:end])


def as_json(envelope: bytes, key: str) -> str:
    """Return an envelope as the JSON that a checkpoint or an output is."""
    return json.dumps({MARK: key, DATA: base64.b64encode(envelope).decode()})


def of_json(text: str | None) -> bytes | None:
    """Return the envelope that a checkpoint or an output is; None if it is none."""
    if text is None or f'"{MARK}"' not in text:
        return None
    try:
        return of_value(json.loads(text))
    except (ValueError, RecursionError):
        return None


def of_value(value: Any) -> bytes | None:
    """Return the envelope that a value of JSON is; None if it is none."""
    if not isinstance(value, dict) or value.keys() != {MARK, DATA} or not isinstance(value[DATA], str):
        return None
    try:
        return base64.b64decode(value[DATA], validate=True)
    except (binascii.Error, ValueError):
        return None


def shown(data: bytes, size: int | None = None) -> str | None:
    """Say what an envelope is, for people: `encrypted (key 2026, 118 bytes)`; None if it is none.

    Args:
        data: its beginning, at least MOST_HEAD bytes of it if it has so many.
        size: how many bytes it has, if that is not all of it.
    """
    head = read(data)
    return None if head is None else f"encrypted (key {head.key}, {size or len(data):,} bytes)"


def shown_json(text: str | None) -> str | None:
    """Say the same of a checkpoint or an output."""
    envelope = of_json(text)
    return None if envelope is None else shown(envelope)
