"""A sink of alerts: it requests its next notification and reports whether it was delivered."""

from __future__ import annotations

from typing import Any

from psycopg.types.json import Jsonb

from tests.sql.queue import Queue, Row

RULES = {
    "group_by": ["topic", "result", "fingerprint"],
    "group_wait": 0,
    "group_interval": 600,
    "repeat_interval": 3600,
    "rate_limit_per_minute": 1000,
    "digest_over": 5,
    "most": 10_000,
}


class Sink:
    """A sink of this name, with rules that differ from RULES in what is given."""

    def __init__(self, queue: Queue, name: str = "ops", holder: str = "h", **rules: Any) -> None:
        self.queue, self.name, self.holder = queue, name, holder
        self.rules = {**RULES, **rules}

    def next(self, hold_s: float = 30) -> Row:
        """Request the next notification."""
        return self.queue.row(
            "SELECT * FROM messages.claim_delivery(%s, 'webhook', %s, %s, make_interval(secs => %s))",
            [self.name, self.holder, Jsonb(self.rules), hold_s],
        )

    def settle(self, got: Row, error: str | None = None, **named: Any) -> bool:
        """Report the result of the delivery."""
        settled: bool = self.queue.call("settle_delivery", self.name, got.fence, got.id, error=error, **named)
        return settled

    def deliver(self) -> dict[str, Any] | None:
        """Deliver the next notification and return its body; None if none is due."""
        got = self.next()
        if got.id is None:
            return None
        assert self.settle(got)
        body: dict[str, Any] = got.message
        return body

    def deliver_all(self) -> list[dict[str, Any]]:
        """Deliver every notification that is due now."""
        bodies = []
        while (message := self.deliver()) is not None:
            bodies.append(message)
        return bodies

    def incident(self) -> Row:
        """Return the only incident of this sink."""
        return self.queue.row("SELECT * FROM messages.alert_incident WHERE sink = %s", [self.name])


def raise_alert(queue: Queue, topic: str | None = "t", **columns: Any) -> int:
    """Write one alert of dead messages, or of `kind`, at the queue's own time; return its id."""
    given = {"topic": topic, "result": "failed", "error_fingerprint": "f" * 16, "sample_error": "boom", **columns}
    names, parameters = ", ".join(given), ", ".join(f"%({name})s" for name in given)
    alert_id: int = queue.value(
        f"INSERT INTO messages.alert (raised_at, {names}) VALUES (messages.now(), {parameters}) RETURNING id", given
    )
    return alert_id
