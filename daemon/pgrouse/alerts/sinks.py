"""Which sink each table `[[alerts.to]]` means. A kind of sink is imported when somebody has one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pgrouse.config.alerts import AlertSink
    from pgrouse.alerts.sink import Sink


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
            from pgrouse.alerts.apprise import ByApprise  # noqa: PLC0415

            return ByApprise(settings)
