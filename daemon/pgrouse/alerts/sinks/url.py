"""The sink `url`: every service that apprise knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from pgrouse.alerts.notice import one_line
from pgrouse.alerts.secret import host_pieces, reveal
from pgrouse.alerts.sink import SendFailed, SinkTable, missing_package
from pgrouse.errors import ConfigError

if TYPE_CHECKING:
    from pgrouse.alerts.notice import Notice


class UrlTable(SinkTable):
    """An address of apprise: mail, chat, pagers."""

    type = "url"

    url: SecretStr
    """An address of apprise (mail, chat, pagers); needs `pip install 'pgrouse[alerts]'`."""

    def create(self) -> AppriseSink:
        """Return the sink."""
        return AppriseSink(self)

    def secret_texts(self) -> set[str]:
        """Return the address, its parts, and what it has instead of a host."""
        return super().secret_texts() | host_pieces(reveal(self.url))


class AppriseSink:
    """Sends by apprise. It returns only whether all went well; the reason is read from its log."""

    def __init__(self, settings: UrlTable) -> None:
        try:
            import apprise  # noqa: PLC0415 - extra alerts
        except ModuleNotFoundError:
            raise missing_package("alerts", settings.name) from None
        self._apprise: Any = apprise
        self._to = apprise.Apprise()
        if not self._to.add(reveal(settings.url)):
            raise ConfigError(
                f"the url of the sink {settings.name} is not one that apprise knows: see its list of services"
            )

    def send(self, notice: Notice, timeout_s: float) -> str:
        """Send a message; return that it was accepted. apprise has time-outs of its own; the caller stops waiting in time."""
        kind = self._apprise.NotifyType.SUCCESS if notice.resolved else self._apprise.NotifyType.FAILURE
        with self._apprise.LogCapture(level=self._apprise.logging.WARNING, fmt="%(message)s") as log:
            accepted = self._to.notify(
                title=notice.title,
                body=notice.body or notice.title,
                notify_type=kind,
                body_format=self._apprise.NotifyFormat.TEXT,
            )
            reason = one_line(log.getvalue(), 300)
        if not accepted:
            raise SendFailed(f"apprise: {reason or 'it was not accepted'}")
        return "accepted"
