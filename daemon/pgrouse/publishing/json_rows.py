"""Many messages as one value, for the statement that publishes them all at once."""

from __future__ import annotations

import base64
import json
from datetime import timedelta
from typing import Any

from pgrouse.publishing.publish_statement import HAS_NO_POLICY

# If none of their topics may have a policy that publishing must check, one statement inserts all of them; otherwise it
# inserts none.
INSERT = f"""
    WITH given AS (
      SELECT g.* FROM ROWS FROM (json_to_recordset(%s::json) AS (
        topic text, channel text, key text, priority integer, payload jsonb, body text, headers jsonb,
        available_at timestamptz, delay_s double precision, ttl_s double precision, max_attempts integer,
        timeout_s double precision, backoff jsonb, retention_s double precision,
        batch_id bigint)
      ) WITH ORDINALITY AS g
    )
    INSERT INTO messages.message (
      topic, channel, key, priority, payload, body, headers, available_at, expires_at, max_attempts,
      timeout, backoff, retention, batch_id)
    SELECT b.topic, b.channel, b.key, coalesce(b.priority, 5),
           CASE WHEN b.body IS NULL THEN coalesce(b.payload, 'null') END, decode(b.body, 'base64'), b.headers,
           coalesce(b.available_at, clock_timestamp() + coalesce(make_interval(secs => b.delay_s), '0')),
           greatest(
             coalesce(b.available_at, clock_timestamp() + coalesce(make_interval(secs => b.delay_s), '0')),
             clock_timestamp())
             + make_interval(secs => b.ttl_s),
           b.max_attempts, make_interval(secs => b.timeout_s), b.backoff, make_interval(secs => b.retention_s),
           b.batch_id
    FROM given AS b
    WHERE NOT EXISTS (SELECT FROM given AS g WHERE ({HAS_NO_POLICY.format(topic="g.topic")}) IS NOT TRUE)
    ORDER BY b.ordinality
    RETURNING id""".encode()  # noqa: S608 - a constant


JSON_COLUMNS = ("payload", "headers", "backoff")
PLAIN_COLUMNS = ("channel", "key", "priority", "max_attempts", "batch_id")
_encode = json.JSONEncoder().encode


def row_json(columns: dict[str, Any]) -> str:
    """Return one message as JSON; its payload, headers and backoff are JSON text already."""
    # The name of a topic needs no escaping.
    parts = [f'{{"topic":"{columns["topic"]}"']
    parts += [f'"{name}":{columns[name]}' for name in JSON_COLUMNS if name in columns]
    parts += [f'"{name}":{_encode(columns[name])}' for name in PLAIN_COLUMNS if name in columns]
    if "body" in columns:
        parts.append(f'"body":"{base64.b64encode(columns["body"]).decode()}"')
    parts += [
        f'"{name}_s":{columns[name].total_seconds()}' for name in ("ttl", "timeout", "retention") if name in columns
    ]
    at = columns.get("available_at")
    if at is not None:
        parts.append(
            f'"delay_s":{at.total_seconds()}' if isinstance(at, timedelta) else f'"available_at":"{at.isoformat()}"'
        )
    return ",".join(parts) + "}"
