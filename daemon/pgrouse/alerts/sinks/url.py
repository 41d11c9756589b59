"""The sink `url`: every service that apprise knows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from pgrouse.alerts.notice import one_line
from pgrouse.alerts.secret import host_pieces, reveal
from pgrouse.alerts.sink import SendFailed, SinkTable, missing_package
from pgrouse.errors import ConfigError

if TYPE_CHECKING:
    from pgrouse.alerts.notice import Notice


# The schema of a mail without encryption, and what says that it is meant.
MAILTO = re.compile(r"\bmailto://", re.IGNORECASE)
INSECURE = re.compile(r"[?&]mode=insecure\b", re.IGNORECASE)


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
        self._to = self._services(reveal(settings.url), settings.name)

    def _services(self, url: str, name: str) -> Any:
        """Return what an address leads to.

        apprise sends the password of `mailto` without encryption: with one it becomes `mailtos`.
        """
        found = self._add(url, name)
        if INSECURE.search(url) or not _mails_password_in_clear(found):
            return found
        found = self._add(MAILTO.sub("mailtos://", url), name)
        if _mails_password_in_clear(found):
            raise ConfigError(
                f"the sink {name} would send its password without encryption: add mode=starttls to its url"
            )
        return found

    def _add(self, url: str, name: str) -> Any:
        found = self._apprise.Apprise()
        if not found.add(url):
            raise ConfigError(f"the url of the sink {name} is not one that apprise knows: see its list of services")
        return found

    def send(self, notice: Notice, timeout_s: float) -> str:
        """Send a message; return that it was accepted.

        apprise has time-outs of its own; the caller stops waiting in time.
        """
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


def _mails_password_in_clear(services: Any) -> bool:
    return any(each.password and getattr(each, "secure_mode", None) == "insecure" for each in services)
