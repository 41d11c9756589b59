"""The parts of secrets, none of which may appear in a log, an error or an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

if TYPE_CHECKING:
    from pydantic import SecretStr

# Shorter pieces of addresses are ordinary words, which should not be hidden everywhere.
SHORTEST_SECRET = 8
# Host names: where another address of apprise may have a token.
THIS_MACHINE = ("localhost", "127.0.0.1", "[::1]")


def address_pieces(secret: str) -> set[str]:
    """Return a secret and, if it is an address, its parts: clients repeat parts of it in their errors."""
    if "://" not in secret:
        return {secret}
    parts = urlsplit(secret)
    user = parts.netloc.rpartition("@")[0]
    pieces = {
        secret,
        parts.path,
        user,
        *user.split(":"),
        *parts.path.split("/"),
        *(value for _, value in parse_qsl(parts.query)),
    }
    return pieces | {unquote(each) for each in pieces}


def host_pieces(url: str) -> set[str]:
    """Return the host part and its halves: in addresses of apprise that is often a token."""
    host = urlsplit(url).netloc.rpartition("@")[2]
    if host.startswith(THIS_MACHINE):
        return set()
    pieces = {host, *host.split(":")}
    return pieces | {unquote(each) for each in pieces}


def reveal(given: SecretStr | None) -> str:
    """Return the text of a secret; empty for none."""
    return given.get_secret_value() if given is not None else ""


def reveal_all(given: Mapping[str, SecretStr]) -> dict[str, str]:
    """Return the texts of secrets, by their names."""
    return {name: reveal(secret) for name, secret in given.items()}
