"""JSON text laid out for people, token by token.

Every digit, escape and duplicate of it stays, however deep or long it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# Deeper levels are shown on the line where they begin: indented, their blanks alone would be a thousand times the
# value.
MAX_INDENT_LEVEL = 40
# A string that was cut has no end: were it asked for, each escaped quote in it would be tried as a beginning again.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"?|[{}\[\],:]|[^\s{}\[\],:"]+')
_OPEN, _CLOSE = "{[", "}]"
# Control characters, what is invisible, and what turns the direction of text: as an escape it means the same, and can
# be seen.
_HIDDEN = re.compile("[\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


def pretty(text: str, limit: int) -> tuple[str, bool]:
    """Lay JSON text out.

    Args:
        text: JSON, also the beginning of one.
        limit: about how many characters it returns at most.

    Returns:
        The text, harmless to look at, and whether something of it is missing.
    """
    parts: list[str] = []
    length = 0
    for part in _format(text):
        parts.append(part)
        length += len(part)
        if length > limit:
            return _visible("".join(parts)[:limit]), True
    return _visible("".join(parts)), False


def _visible(text: str) -> str:
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _format(text: str) -> Iterator[str]:
    depth, at = 0, 0
    before = ""
    for found in _TOKEN.finditer(text):
        word = found[0]
        # A text that is no token (an escape that was cut) is passed on as it is.
        yield text[at : found.start()].strip()
        at = found.end()
        if word in _CLOSE:
            depth -= 1
        yield _gap(before, word, depth) + word + (" " if word == ":" else "")
        if word in _OPEN:
            depth += 1
        before = word
    yield text[at:].strip()


def _gap(before: str, word: str, depth: int) -> str:
    if word in ",:" or before in ("", ":") or (before in _OPEN and word in _CLOSE):
        return ""
    if before in _OPEN or before == "," or word in _CLOSE:
        return "\n" + "  " * depth if depth <= MAX_INDENT_LEVEL else ""
    return ""


def hex_dump(body: bytes) -> str:
    """Write bytes as lines of an offset, sixteen of them as hex, and those that can be printed."""
    lines = []
    for at in range(0, len(body), 16):
        row = body[at : at + 16]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)  # noqa: PLR2004
        lines.append(f"{at:08x}  {row[:8].hex(' '):<23}  {row[8:].hex(' '):<23}  {text}")
    return "\n".join(lines)
