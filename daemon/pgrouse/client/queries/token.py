"""The tokens of the web server as operators see them: on the command line and on the dashboard."""

from __future__ import annotations

TOKENS = """
  SELECT t.name, t.roles, t.topics, t.created_at, t.created_by, t.expires_at, t.last_used_at, t.revoked_at,
         CASE
           WHEN t.revoked_at IS NOT NULL THEN 'revoked'
           WHEN t.expires_at <= clock_timestamp() THEN 'expired'
           ELSE 'good'
         END AS state,
         clock_timestamp() - t.last_used_at AS used, clock_timestamp() - t.expires_at AS expires
  FROM messages.token AS t
  ORDER BY t.name"""
