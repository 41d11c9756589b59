"""What of a sink must be seen by nobody: in no log, no error, no answer."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

if TYPE_CHECKING:
    from pydantic import SecretStr

    from pgrouse.config.alerts import AlertSink

# Shorter pieces of addresses are ordinary words: to hide them everywhere would hide those.
SHORTEST_SECRET = 8
# What stands where apprise may have a token, and is none.
THIS_MACHINE = ("localhost", "127.0.0.1", "[::1]")


def secrets(settings: AlertSink) -> list[str]:
    """Return every text of a sink that must not be seen, the longest first: addresses of webhooks are secrets as a whole."""
    found: set[str] = set()
    for given in (settings.url, settings.webhook, settings.alertmanager, settings.sentry):
        found |= _pieces(reveal(given))
    found |= _place(reveal(settings.url))
    found |= {reveal(each) for each in (settings.secret, *settings.headers.values())}
    return sorted((each for each in found if len(each) >= SHORTEST_SECRET), key=len, reverse=True)


def _pieces(url: str) -> set[str]:
    """Return an address and what stands in it: clients repeat parts of it in their errors."""
    parts = urlsplit(url)
    user = parts.netloc.rpartition("@")[0]
    pieces = {
        url,
        parts.path,
        user,
        *user.split(":"),
        *parts.path.split("/"),
        *(value for _, value in parse_qsl(parts.query)),
    }
    return pieces | {unquote(each) for each in pieces}


def _place(url: str) -> set[str]:
    """Return what stands in the place of the host, and its halves: in addresses of apprise that is often a token."""
    place = urlsplit(url).netloc.rpartition("@")[2]
    if place.startswith(THIS_MACHINE):
        return set()
    pieces = {place, *place.split(":")}
    return pieces | {unquote(each) for each in pieces}


def reveal(given: SecretStr | None) -> str:
    """Return the text of a secret; empty for none."""
    return given.get_secret_value() if given is not None else ""
