"""Ways to break the queue, each by one change of one SQL function: the checker must find every one of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg


@dataclass(frozen=True)
class Break:
    """A replacement of text in a function. A break whose text no longer exists is an error, not a break."""

    function: str
    changes: tuple[tuple[str, str], ...]
    before: str = ""

    def install(self, conn: psycopg.Connection[Any]) -> None:
        """Break the database of this connection."""
        if self.before:
            conn.execute(self.before.encode())
        row = conn.execute("SELECT pg_get_functiondef(%s::regproc)", [f"messages.{self.function}"]).fetchone()
        definition = row[0] if row else ""
        for old, new in self.changes:
            assert definition.count(old) == 1, f"{self.function} does not have {old!r} once"
            definition = definition.replace(old, new)
        conn.execute(definition.encode())


BREAKS = {
    "a settle without the fence": Break(
        "complete",
        (
            (
                "WHEN (m.id, m.claim_id) IN (SELECT e.id, e.claim_id FROM unnest(p_ids, p_claim_ids) "
                "AS e (id, claim_id))",
                "WHEN m.claim_id IS NOT NULL",
            ),
        ),
    ),
    "an archive in two transactions": Break(
        "complete",
        (("INSERT INTO messages.message_archive (", "INSERT INTO public.on_its_way ("),),
        before="CREATE TABLE on_its_way (LIKE messages.message_archive INCLUDING DEFAULTS); "
        "GRANT ALL ON on_its_way TO PUBLIC",
    ),
    "a heartbeat that resurrects": Break(
        "heartbeat",
        (
            ("SELECT m.id, coalesce(", "SELECT m.id, e.claim_id, coalesce("),
            ("AND (m.claim_id = e.claim_id) IS TRUE\n    JOIN", "\n    JOIN"),
            (
                "SET lock_expires_at = greatest(m.lock_expires_at,",
                "SET claim_id = h.claim_id, locked_by = coalesce(m.locked_by, '?'), locked_at = "
                "coalesce(m.locked_at, v_now),"
                " lock_expires_at = greatest(m.lock_expires_at,",
            ),
        ),
    ),
    "an expire_locks without the time": Break("expire_locks", (("AND m.lock_expires_at < v_now", ""),)),
    "an end that is archived twice": Break(
        "archive",
        (
            (
                "FROM gone AS g\n    CROSS JOIN LATERAL",
                "FROM gone AS g\n    CROSS JOIN generate_series(1, 1 + (p_result = 'lock_expired')::integer)"
                "\n    CROSS JOIN LATERAL",
            ),
        ),
    ),
    "a low-water mark that is raised too far": Break(
        "raise_low_water",
        (
            (">= p_slow", ">= '-1 s'"),
            ("least(v_mark.safe_at, v_first)", "clock_timestamp()"),
        ),
    ),
    "a release that forgets": Break(
        "release", (("messages.return_attempts(p_ids, p_claim_ids, NULL, NULL, NULL, NULL, p_ran)", "p_ids"),)
    ),
    "a claim that counts no attempt": Break("claim_with_next_due",
        (("attempts = m.attempts + 1", "attempts = m.attempts"),)),
    "a limit that is not counted": Break("topic_slots", (("LIMIT v_bound) AS running", "LIMIT 0) AS running"),)),
    "a limit of a worker that is not counted": Break(
        "topic_slots", (("LIMIT v_own) AS running", "LIMIT 0) AS running"),)
    ),
    "an order that is not kept": Break(
        "channel_slots",
        (("CASE WHEN p_policy.ordered THEN 1", "CASE WHEN p_policy.ordered THEN 2"),
            ("p_policy.ordered AND c.is_second", "false")),
    ),
    "a rate that is not charged": Break("charge_rate",
        (("p_now + make_interval(secs => p_count / p_rate))", "p_now)"),
        ("r.free_at, p_now) + make_interval(secs => p_count / p_rate)", "r.free_at, p_now)"))),
    "a depth that is not lowered": Break("subtract_depth", (("-e.ended", "0"),)),
    "a death without an alert": Break(
        "dead_message",
        (("AND a.archived_at = now()\n      GROUP BY", "AND a.result = 'failed'\n      GROUP BY"),),
    ),
    "a death without its copy": Break("dead_message",
        (("AND right(a.topic, 4) <> '.dlq'", "AND a.result = 'lock_expired'"),)),
}  # fmt: skip
