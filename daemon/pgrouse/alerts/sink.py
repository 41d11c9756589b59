"""What every sink is: something that a message can be sent to, and that says what came back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

from pgrouse.errors import ConfigError

if TYPE_CHECKING:
    from pydantic import SecretStr

    from pgrouse.alerts.notice import Notice
    from pgrouse.alerts.settings import AlertSink

# Shorter pieces of addresses are ordinary words: to hide them everywhere would hide those.
SHORTEST_SECRET = 8


class SendFailed(Exception):
    """A message did not arrive, or nobody knows whether it did.

    Attributes:
        refused: whether the sink understood and will not take this message, however often it comes.
        retry_after_s: when the sink itself says to come again, in seconds.
    """

    def __init__(self, reason: str, *, refused: bool = False, retry_after_s: float | None = None) -> None:
        super().__init__(reason)
        self.refused, self.retry_after_s = refused, retry_after_s


class Sink(Protocol):
    """A place to send messages to. It blocks: it is called on a thread of its own."""

    def send(self, notice: Notice, timeout_s: float) -> str:
        """Send a message; return what came back, in a few words.

        Raises:
            SendFailed: it did not arrive.
        """


def make(settings: AlertSink) -> Sink:
    """Return the sink of a table `[[alerts.to]]`; nothing is connected yet.

    Raises:
        ConfigError: a package is missing, or the address is none.
    """
    match settings.type:
        case "webhook":
            from pgrouse.alerts.webhook import Webhook  # noqa: PLC0415

            return Webhook(settings)
        case "alertmanager":
            from pgrouse.alerts.alertmanager import Alertmanager  # noqa: PLC0415

            return Alertmanager(settings)
        case "command":
            from pgrouse.alerts.command import Command  # noqa: PLC0415

            return Command(settings)
        case "sentry":
            from pgrouse.alerts.sentry import Sentry  # noqa: PLC0415

            return Sentry(settings)
        case _:
            from pgrouse.alerts.by_apprise import ByApprise  # noqa: PLC0415

            return ByApprise(settings)


def missing(extra: str, name: str) -> ConfigError:
    """Return the error of a sink whose package is not installed."""
    return ConfigError(f"the sink {name} needs a package that is not installed: pip install 'pgrouse[{extra}]'")


def secrets(settings: AlertSink) -> list[str]:
    """Return every text of a sink that must not be seen, the longest first: addresses of webhooks are secrets as a whole."""
    found: set[str] = set()
    for given in (settings.url, settings.webhook, settings.alertmanager, settings.sentry):
        found |= _pieces(reveal(given))
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


def reveal(given: SecretStr | None) -> str:
    """Return the text of a secret; empty for none."""
    return given.get_secret_value() if given is not None else ""
