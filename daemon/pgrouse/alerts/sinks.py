"""Creates the sinks of the tables `[[alerts.to]]`. A kind of sink is imported only if it is configured."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pgrouse.alerts.sink import Sink
    from pgrouse.config.alerts import AlertSink


def create_sink(settings: AlertSink) -> Sink:
    """Return the sink of a table `[[alerts.to]]`; nothing is connected yet.

    Raises:
        ConfigError: a package is missing, or the address is invalid.
    """
    match settings.type:
        case "webhook":
            from pgrouse.alerts.webhook import WebhookSink  # noqa: PLC0415

            return WebhookSink(settings)
        case "alertmanager":
            from pgrouse.alerts.alertmanager import AlertmanagerSink  # noqa: PLC0415

            return AlertmanagerSink(settings)
        case "command":
            from pgrouse.alerts.command import CommandSink  # noqa: PLC0415

            return CommandSink(settings)
        case "sentry":
            from pgrouse.alerts.sentry import SentrySink  # noqa: PLC0415

            return SentrySink(settings)
        case _:
            from pgrouse.alerts.apprise import AppriseSink  # noqa: PLC0415

            return AppriseSink(settings)
