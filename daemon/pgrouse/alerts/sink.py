"""The interface of all sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pgrouse.errors import ConfigError

if TYPE_CHECKING:
    from pgrouse.alerts.notice import Notice


class SendFailed(Exception):
    """A message did not arrive, or it is not known whether it did.

    Attributes:
        refused: whether the sink rejected this message, so that a retry is useless.
        retry_after_s: how long the sink asks to wait before the next attempt, in seconds.
    """

    def __init__(self, reason: str, *, refused: bool = False, retry_after_s: float | None = None) -> None:
        super().__init__(reason)
        self.refused, self.retry_after_s = refused, retry_after_s


class Sink(Protocol):
    """Sends messages to one address. It blocks: it is called on its own thread."""

    def send(self, notice: Notice, timeout_s: float) -> str:
        """Send a message; return what came back, in a few words.

        Raises:
            SendFailed: it did not arrive.
        """


def missing_package(extra: str, name: str) -> ConfigError:
    """Return the error for a sink if its package is not installed."""
    return ConfigError(f"the sink {name} needs a package that is not installed: pip install 'pgrouse[{extra}]'")
