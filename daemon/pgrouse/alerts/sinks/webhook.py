"""The sink `webhook`: JSON by POST, signed as a Standard Webhook, so that libraries can check it.

https://www.standardwebhooks.com
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import time
from typing import TYPE_CHECKING

from pydantic import Field, SecretStr

from pgrouse.alerts.http_post import http_post
from pgrouse.alerts.secret import reveal, reveal_all
from pgrouse.alerts.sink import SinkTable
from pgrouse.config.alerts import HttpUrl
from pgrouse.errors import ConfigError

if TYPE_CHECKING:
    from pgrouse.alerts.notice import Notice

PREFIX = "whsec_"


class WebhookTable(SinkTable):
    """A webhook: signed JSON by POST."""

    type = "webhook"

    webhook: HttpUrl
    """Where to POST JSON."""
    secret: SecretStr | None = None
    """Signs each request, by the rules of Standard Webhooks."""
    headers: dict[str, SecretStr] = Field(default_factory=dict)
    """Further headers of the request."""

    def check(self) -> None:
        """Check the secret."""
        self._key()

    def send(self, notice: Notice, timeout_s: float) -> str:
        """POST a message as JSON; return the status of the answer."""
        body = json.dumps(notice.payload(), ensure_ascii=False).encode(errors="replace")
        at = int(time.time())
        headers = {"Content-Type": "application/json", "webhook-id": notice.id, "webhook-timestamp": str(at)}
        if key := self._key():
            headers["webhook-signature"] = signature(key, notice.id, at, body)
        return http_post(reveal(self.webhook), body, {**headers, **reveal_all(self.headers)}, timeout_s)

    def _key(self) -> bytes:
        """Return the bytes of the secret: base64 after whsec_, else the text itself."""
        secret = reveal(self.secret)
        if not secret.startswith(PREFIX):
            return secret.encode()
        try:
            return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
        except binascii.Error:
            raise ConfigError(
                f"the secret of the sink {self.name} begins with {PREFIX}, but the rest is not base64"
            ) from None


def signature(key: bytes, message_id: str, at: int, body: bytes) -> str:
    """Return the value of `webhook-signature`: HMAC-SHA256 over id, timestamp and body, joined by dots."""
    signed = b".".join([message_id.encode(), str(at).encode(), body])
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
