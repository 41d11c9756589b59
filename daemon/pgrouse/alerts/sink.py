"""What every sink is: something that a message can be sent to, and that says what came back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pgrouse.errors import ConfigError

if TYPE_CHECKING:
    from pgrouse.alerts.notice import Notice


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


def missing(extra: str, name: str) -> ConfigError:
    """Return the error of a sink whose package is not installed."""
    return ConfigError(f"the sink {name} needs a package that is not installed: pip install 'pgrouse[{extra}]'")
