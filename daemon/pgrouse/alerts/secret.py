"""The secrets of a sink, which must not appear in any log, error or answer."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

if TYPE_CHECKING:
    from pydantic import SecretStr

    from pgrouse.config.alerts import AlertSink

# Shorter pieces of addresses are ordinary words, which should not be hidden everywhere.
SHORTEST_SECRET = 8
# Host names: where another address of apprise may have a token.
THIS_MACHINE = ("localhost", "127.0.0.1", "[::1]")


def secrets(settings: AlertSink) -> list[str]:
    """Return all secret texts of a sink, the longest first. Webhook addresses are secret as a whole."""
    found: set[str] = set()
    for given in (settings.url, settings.webhook, settings.alertmanager, settings.sentry):
        found |= _url_pieces(reveal(given))
    found |= _host_pieces(reveal(settings.url))
    found |= {reveal(each) for each in (settings.secret, *settings.headers.values())}
    return sorted((each for each in found if len(each) >= SHORTEST_SECRET), key=len, reverse=True)


def _url_pieces(url: str) -> set[str]:
    """Return an address and its parts: clients repeat parts of it in their errors."""
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


def _host_pieces(url: str) -> set[str]:
    """Return the host part and its halves: in addresses of apprise that is often a token."""
    host = urlsplit(url).netloc.rpartition("@")[2]
    if host.startswith(THIS_MACHINE):
        return set()
    pieces = {host, *host.split(":")}
    return pieces | {unquote(each) for each in pieces}


def reveal(given: SecretStr | None) -> str:
    """Return the text of a secret; empty for none."""
    return given.get_secret_value() if given is not None else ""
