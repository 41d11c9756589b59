"""Connection strings, and how to show them without their passwords."""

from __future__ import annotations

import re
from collections.abc import Iterable

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

HIDDEN = "****"
# Hide everything up to the last @ of the word: a password with an unescaped @ or / in it must not be shown. Hiding too
# much is better. Neither pattern reads a character repeatedly: a long line without a space in the log must not delay
# the daemon.
_TO_THE_LAST_AT = re.compile(r"(?<!\S)\S*@")
_HEAD_OF_URI = re.compile(r"(?<!\w)\w++://[^:/@\s]*+:")
_AS_KEYWORD = re.compile(
    r"(?P<head>\b(?:ssl)?password\s*+=\s*+)(?:'(?:\\.|[^'\\]++)*+'?|(?:\\.|[^\s&'\\]++)++)", re.IGNORECASE
)
_SECRET_KEYWORDS = ("password", "sslpassword")
_SHORTEST_SECRET = 6


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Return the text without passwords of connection strings, and without the given secrets.

    They are hidden wherever they occur.
    """
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    # Most texts have neither, and this test is a hundred times faster.
    if "://" in text and "@" in text:
        text = _TO_THE_LAST_AT.sub(_without_password, text)
    return _AS_KEYWORD.sub(rf"\g<head>{HIDDEN}", text) if "password" in text.lower() else text


def _without_password(word: re.Match[str]) -> str:
    head = _HEAD_OF_URI.search(word[0])
    return word[0] if head is None else f"{word[0][: head.end()]}{HIDDEN}@"


def is_dsn(text: str) -> bool:
    """Return whether libpq can read it."""
    return _read(text) is not None


def secrets(*dsns: str | None) -> list[str]:
    """Return the passwords in connection strings.

    Passwords that are short, or that are also a name in the string, are left out: hiding them everywhere would hide
    ordinary words. Where they stand in a connection string, they are hidden anyway.
    """
    return [secret for dsn in dsns for secret in _secrets(_read(dsn or "") or {})]


def _secrets(parts: dict[str, str]) -> list[str]:
    names = {value for keyword, value in parts.items() if keyword not in _SECRET_KEYWORDS}
    found = [parts[keyword] for keyword in _SECRET_KEYWORDS if keyword in parts]
    return [secret for secret in found if len(secret) >= _SHORTEST_SECRET and secret not in names]


def _read(text: str) -> dict[str, str] | None:
    try:
        return {key: str(value) for key, value in conninfo_to_dict(text).items()} if text else {}
    except ProgrammingError:
        return None
