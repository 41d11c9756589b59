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

    def secret_texts(self) -> set[str]:
        """Return the address, its parts, and what it has instead of a host."""
        return super().secret_texts() | host_pieces(reveal(self.url))

    def check(self) -> None:
        """Check the package and the address."""
        self._services(self._apprise())

    def _apprise(self) -> Any:
        try:
            import apprise  # noqa: PLC0415 - extra alerts
        except ModuleNotFoundError:
            raise missing_package("alerts", self.name) from None
        return apprise

    def _services(self, apprise: Any) -> Any:
        """Return what the address leads to.

        apprise sends the password of `mailto` without encryption: with one it becomes `mailtos`.
        """
        url = reveal(self.url)
        found = self._add(apprise, url)
        if INSECURE.search(url) or not _mails_password_in_clear(found):
            return found
        found = self._add(apprise, MAILTO.sub("mailtos://", url))
        if _mails_password_in_clear(found):
            raise ConfigError(
                f"the sink {self.name} would send its password without encryption: add mode=starttls to its url"
            )
        return found

    def _add(self, apprise: Any, url: str) -> Any:
        found = apprise.Apprise()
        if not found.add(url):
            raise ConfigError(
                f"the url of the sink {self.name} is not one that apprise knows: see its list of services"
            )
        return found

    def send(self, notice: Notice, timeout_s: float) -> str:
        """Send a message; return that it was accepted.

        apprise has time-outs of its own; the caller stops waiting in time. It returns only whether all went well: the
        reason is read from its log.
        """
        apprise = self._apprise()
        services = self._services(apprise)
        kind = apprise.NotifyType.SUCCESS if notice.resolved else apprise.NotifyType.FAILURE
        with apprise.LogCapture(level=apprise.logging.WARNING, fmt="%(message)s") as log:
            accepted = services.notify(
                title=notice.title,
                body=notice.body or notice.title,
                notify_type=kind,
                body_format=apprise.NotifyFormat.TEXT,
            )
            reason = one_line(log.getvalue(), 300)
        if not accepted:
            raise SendFailed(f"apprise: {reason or 'it was not accepted'}")
        return "accepted"


def _mails_password_in_clear(services: Any) -> bool:
    return any(each.password and getattr(each, "secure_mode", None) == "insecure" for each in services)
