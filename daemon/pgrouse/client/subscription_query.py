"""Which topics get copies of the messages of another: read and changed on the command line and on the dashboard."""

from __future__ import annotations

# topic: NULL = all, else those that it has a part in.
SUBSCRIPTIONS = """
  SELECT s.topic, s.subscriber, s.created_at, s.created_by FROM messages.subscription AS s
  WHERE %(topic)s::text IS NULL OR %(topic)s IN (s.topic, s.subscriber)
  ORDER BY s.topic, s.subscriber"""
SUBSCRIBE = "INSERT INTO messages.subscription (topic, subscriber) VALUES (%s, %s) ON CONFLICT DO NOTHING"
UNSUBSCRIBE = "DELETE FROM messages.subscription WHERE topic = %s AND subscriber = %s"
