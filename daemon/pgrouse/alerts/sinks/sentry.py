"""The sink `sentry`: each message is an event, grouped by Sentry as pgrouse groups.

The client of the SDK sends in the background and never reports the result. This module posts the envelope itself and
reads the answer.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from pgrouse.alerts.http_post import http_post
from pgrouse.alerts.secret import reveal
from pgrouse.alerts.sink import SinkTable, missing_package
from pgrouse.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sentry_sdk.envelope import Envelope
    from sentry_sdk.utils import Auth

    from pgrouse.alerts.notice import Notice


class SentryTable(SinkTable):
    """A project of Sentry."""

    type = "sentry"

    sentry: SecretStr
    """The DSN of a project of Sentry; needs `pip install 'pgrouse[sentry]'`."""

    def check(self) -> None:
        """Check the package and the DSN."""
        self._parts()

    def _parts(self) -> tuple[Callable[..., Envelope], Auth]:
        """Return what makes an envelope, and where it goes."""
        try:
            from sentry_sdk.envelope import Envelope  # noqa: PLC0415 - extra sentry
            from sentry_sdk.utils import BadDsn, Dsn  # noqa: PLC0415 - extra sentry
        except ModuleNotFoundError:
            raise missing_package("sentry", self.name) from None
        try:
            return Envelope, Dsn(reveal(self.sentry)).to_auth("pgrouse")
        except BadDsn:
            raise ConfigError(f"the sentry of the sink {self.name} is not a DSN of Sentry") from None

    def send(self, notice: Notice, timeout_s: float) -> str:
        """POST a message as an event; return the status of the answer."""
        new_envelope, auth = self._parts()
        event: Any = _event(notice)
        envelope = new_envelope(headers={"event_id": event["event_id"]})
        envelope.add_event(event)
        body = io.BytesIO()
        envelope.serialize_into(body)
        headers = {"Content-Type": "application/x-sentry-envelope", "X-Sentry-Auth": auth.to_header()}
        return http_post(auth.get_api_url(), body.getvalue(), headers, timeout_s)


def _event(notice: Notice) -> dict[str, Any]:
    group = notice.groups[0]
    tags = {name: str(group[name]) for name in ("kind", "topic", "result", "fingerprint") if group[name]}
    return {
        # Sentry stores one event per id, so a repetition is not a second event.
        "event_id": notice.id.replace("-", ""),
        "timestamp": notice.created_at.isoformat(),
        "platform": "python",
        "logger": "pgrouse.alerts",
        **({"environment": notice.queue.environment} if notice.queue.environment else {}),
        "level": "info" if notice.resolved else "error",
        "message": {"formatted": f"{notice.title}\n\n{notice.body}"},
        "fingerprint": ["pgrouse", *([group["group"]] if notice.content["group_count"] == 1 else ["several groups"])],
        "tags": tags,
        "extra": {
            "count": notice.content["count"],
            "group_count": notice.content["group_count"],
            "id": notice.id,
            "link": notice.link,
        },
    }
