"""The interface of all sinks: the table that configures one, and sends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import ConfigDict, SecretStr

from pgrouse.alerts.secret import SHORTEST_SECRET, address_pieces
from pgrouse.config.alerts import AlertSink
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


class SinkTable(AlertSink):
    """A table `[[alerts.to]]` of one type of sink.

    A subclass has a field for each key of its own, secrets as SecretStr.

    Attributes:
        type: the key whose presence says that a sink is of this type.
        digest_over: more groups than this at once become one message; 0: never.
        max_groups: the most groups in one message.
    """

    model_config = ConfigDict(extra="forbid")

    type: ClassVar[str]
    digest_over: ClassVar[int] = 5
    max_groups: ClassVar[int] = 10_000

    def send(self, notice: Notice, timeout_s: float) -> str:
        """Send a message; return what came back, in a few words. It blocks: it is called on its own thread.

        Raises:
            SendFailed: it did not arrive.
            ConfigError: as `check`.
        """
        raise NotImplementedError

    def check(self) -> None:
        """Check whether the sink can work, without sending anything.

        Raises:
            ConfigError: a package is missing, or the address is invalid.
        """

    def secrets(self) -> list[str]:
        """Return all texts that may appear in no log, error or answer, the longest first."""
        return sorted((each for each in self.secret_texts() if len(each) >= SHORTEST_SECRET), key=len, reverse=True)

    def secret_texts(self) -> set[str]:
        """Return its secrets, and the parts of those that are addresses."""
        values = [getattr(self, name) for name in type(self).model_fields]
        return {piece for value in values for secret in _secrets_in(value) for piece in address_pieces(secret)}


def _secrets_in(value: Any) -> list[str]:
    values = value.values() if isinstance(value, dict) else [value]
    return [each.get_secret_value() for each in values if isinstance(each, SecretStr)]


def missing_package(extra: str, name: str) -> ConfigError:
    """Return the error for a sink if its package is not installed."""
    return ConfigError(f"the sink {name} needs a package that is not installed: pip install 'pgrouse[{extra}]'")
