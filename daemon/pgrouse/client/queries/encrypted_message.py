"""Encrypted messages: the beginnings of their envelopes, which name the keys, and what is encrypted again."""

from __future__ import annotations

from collections.abc import Sequence

from pgrouse.client.call import Call, Rows
from pgrouse.crypto.envelope import DATA, ENCRYPTED_BY, MAX_HEADER_BYTES

# How many characters of Base64 hold the header of the envelope of a checkpoint.
STATE_HEADER_CHARS = 4 * (MAX_HEADER_BYTES // 3 + 1)
BODY_HEADER = (
    f"CASE WHEN substring({{row}}.body FOR 4) = '\\x93504752' THEN substring({{row}}.body FOR {MAX_HEADER_BYTES}) END"
)
STATE_HEADER = (
    f"CASE WHEN {{row}}.state ? '{ENCRYPTED_BY}' THEN left({{row}}.state ->> '{DATA}', {STATE_HEADER_CHARS}) END"
)
# By the primary key, page by page: a page reads a fixed number of rows, however many messages there are.
LIVE = f"""
  SELECT m.id, m.topic::text, m.claim_id IS NOT NULL, {BODY_HEADER.format(row="m")}, {STATE_HEADER.format(row="m")},
         octet_length(m.body)
  FROM messages.message AS m
  WHERE m.id > %(after)s
  ORDER BY m.id
  LIMIT %(page)s"""  # noqa: S608 - constants only
# One row per message and key: by the name of the key and the part of the envelope with its fingerprint.
STEPS = f"""
  SELECT DISTINCT ON (s.message_id, s.result ->> '{ENCRYPTED_BY}', left(s.result ->> '{DATA}', 21))
    s.message_id, left(s.result ->> '{DATA}', {STATE_HEADER_CHARS})
  FROM messages.step AS s
  WHERE s.message_id = ANY (%s) AND s.result ? '{ENCRYPTED_BY}'"""  # noqa: S608 - constants only
DEAD = f"""
  SELECT d.header, d.state
  FROM unnest(%(topics)s::text[]) AS t (topic)
  CROSS JOIN LATERAL (
    SELECT {BODY_HEADER.format(row="a")} AS header, {STATE_HEADER.format(row="a")} AS state
    FROM messages.message_archive AS a
    WHERE a.result NOT IN ('success', 'cancelled') AND a.topic = t.topic COLLATE "C"
    ORDER BY a.archived_at DESC, a.id DESC
    LIMIT %(most)s
  ) AS d
  LIMIT %(most)s"""  # noqa: S608 - constants only
READ = b"""
  SELECT m.id, m.topic::text, m.body::bytea, m.state::text
  FROM messages.message AS m WHERE m.id = ANY (%s::bigint[]) AND m.claim_id IS NULL"""


def find_live(after: int, page: int) -> Call[Rows]:
    """Read messages that have not ended, encrypted or not, in the order of their ids after an id.

    Of each: id, topic, whether it runs, the beginning of its envelope, that of its checkpoint, the bytes of its body.
    """
    return Call(LIVE.encode(), {"after": after, "page": page}, list)


def find_steps(ids: Sequence[int]) -> Call[Rows]:
    """Read the ids of messages with encrypted results of steps, and the beginning of an envelope for each key."""
    return Call(STEPS.encode(), [list(ids)], list)


def find_dead(topics: Sequence[str], most: int) -> Call[Rows]:
    """Read of dead messages of topics, of each topic the latest, the beginnings of their envelope and checkpoint."""
    return Call(DEAD.encode(), {"topics": list(topics), "most": most}, list)


def read_waiting(ids: Sequence[int]) -> Call[Rows]:
    """Read the id, topic, body and checkpoint of those messages that wait."""
    return Call(READ, [list(ids)], list)
