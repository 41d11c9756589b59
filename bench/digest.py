"""Work for a handler or a Spark function: about 0.5 ms of CPU."""

from __future__ import annotations

import hashlib

TIMES = 1_600


def digest(text: str) -> str:
    """Return a digest of a text, computed many times over."""
    made = text.encode()
    for _ in range(TIMES):
        made = hashlib.sha256(made).digest()
    return made.hex()
