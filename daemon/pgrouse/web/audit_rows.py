"""Which rows of messages.audit a caller may see."""

from __future__ import annotations

# A condition on a row `a`; `like` are the patterns of the caller's topics, NULL for one that sees all. What is about no topic, or also about one
# of others, is for callers that see them all.
VISIBLE = """(%(like)s::text[] IS NULL OR (a.topic LIKE ANY (%(like)s) AND NOT EXISTS (
      SELECT FROM jsonb_path_query(a.detail, '$.topics[*]') AS o (topic) WHERE NOT (o.topic #>> '{}') LIKE ANY (%(like)s))))"""
