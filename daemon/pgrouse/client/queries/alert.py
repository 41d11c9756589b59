"""Alerts, sinks and silences as operators see them: on the command line and on the dashboard."""

from __future__ import annotations

# sink: NULL = of all; all: also those that are over.
INCIDENTS = """
  SELECT i.sink, i.kind, i.topic, i.result, i.error_fingerprint,
         CASE WHEN i.state <> 'over' AND silenced.until IS NOT NULL THEN 'silenced' ELSE i.state END AS state,
         i.count, i.pending, i.silenced, i.notifications, i.notified_at, i.escalated_at, i.due_at, i.first_at, i.last_at,
         i.first_message_id, i.last_message_id, i.sample_error, i.fix, clock_timestamp() - i.last_at AS age
  FROM messages.alert_incident AS i
  CROSS JOIN LATERAL (SELECT messages.silenced_until(i.kind, i.topic, i.error_fingerprint) AS until) AS silenced
  WHERE (%(sink)s::text IS NULL OR i.sink = %(sink)s) AND (%(all)s OR i.state <> 'over')
  ORDER BY i.last_at DESC, i.sink LIMIT %(limit)s"""
SINKS = """
  SELECT s.name, s.type,
         CASE
           WHEN s.failing_since IS NOT NULL THEN 'failing'
           WHEN s.seen_at < clock_timestamp() - interval '1 minute' THEN 'no deliverer'
           ELSE 'ok'
         END AS state,
         s.held_by, s.seen_at, s.delivered_at, s.failing_since, s.failures,
         CASE WHEN s.failing_since IS NOT NULL THEN s.last_error END AS last_error,
         waiting.messages AS waiting, waiting.since AS waiting_since, aside.messages AS abandoned,
         clock_timestamp() - s.delivered_at AS age
  FROM messages.alert_sink AS s
  CROSS JOIN LATERAL (
    SELECT count(*) AS messages, min(d.created_at) AS since FROM messages.alert_delivery AS d
    WHERE d.sink = s.name AND d.delivered_at IS NULL AND d.abandoned_at IS NULL) AS waiting
  CROSS JOIN LATERAL (
    SELECT count(*) AS messages FROM messages.alert_delivery AS d
    WHERE d.sink = s.name AND d.abandoned_at IS NOT NULL) AS aside
  ORDER BY s.name"""
SILENCES = """
  SELECT s.id, s.kind, s.topic, s.error_fingerprint, s.until, s.reason, s.created_at, s.created_by,
         s.until - clock_timestamp() AS ends_in
  FROM messages.silence AS s
  WHERE s.ended_at IS NULL AND s.until > clock_timestamp()
  ORDER BY s.until"""
