"""Tokens: 256 random bits behind a readable prefix, with a checksum.

The checksum lets leaked ones be found and mistyped ones be refused.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import zlib

PREFIX = "pgr_"
_FORM = re.compile(r"pgr_([A-Za-z0-9_-]{43})([0-9a-f]{8})", re.ASCII)


def new() -> str:
    """Return a new token. It is shown once; only its digest is kept."""
    random = secrets.token_urlsafe(32)
    return f"{PREFIX}{random}{_checksum(random)}"


def is_well_formed(token: str) -> bool:
    """Whether it can be a token of pgrouse: most guesses need no lookup."""
    found = _FORM.fullmatch(token)
    return found is not None and _checksum(found[1]) == found[2]


def digest(secret: str) -> bytes:
    """Return what the database keeps. No salt: 256 random bits need none."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def _checksum(random: str) -> str:
    return f"{zlib.crc32(random.encode()):08x}"
