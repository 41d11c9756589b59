"""The archive in the order of (archive_xid, id).

The calls say where a batch of rows ends, how many rows come after it, and how it is divided among readers. Conditions
are those of `row`, with literals.
"""

from __future__ import annotations

from dataclasses import dataclass

from pgrouse.client.call import Call, Rows, query_call, value
from pgrouse.client.queries.pipeline.row import DEAD, Key, between

# The rows that a reader may have after a position; the queries below contain this.
BELOW_WATERMARK = """
      FROM messages.message_archive AS a
      WHERE {condition} AND a.archive_xid < %(watermark)s::xid8
"""
# Below a watermark no more rows are added. So if there is no row with this number, the last row is the end, at
# whatever time this runs.
NTH = """
    SELECT t.archive_xid::text, t.id
    FROM (SELECT a.archive_xid, a.id {below} ORDER BY a.archive_xid, a.id OFFSET %(rows)s - 1 LIMIT 1) AS t
"""
LAST = """
    SELECT t.archive_xid::text, t.id
    FROM (SELECT a.archive_xid, a.id {below} ORDER BY a.archive_xid DESC, a.id DESC LIMIT 1) AS t
"""
# pg_column_size does not fetch values that are stored out of line, so this is as fast as possible; it counts compressed
# bytes. The columns of t are qualified: otherwise the last ORDER BY would use the text with the same name, and sort 950
# after 18034.
BY_BYTES = """
    SELECT t.archive_xid::text, t.id
    FROM (
      SELECT
        s.archive_xid, s.id,
        sum(s.bytes) OVER (ORDER BY s.archive_xid, s.id ROWS UNBOUNDED PRECEDING) AS bytes,
        row_number() OVER (ORDER BY s.archive_xid, s.id) AS place
      FROM (
        SELECT
          a.archive_xid, a.id,
          coalesce(pg_column_size(a.payload), 0) + coalesce(pg_column_size(a.body), 0) AS bytes
        {below}
        ORDER BY a.archive_xid, a.id
        LIMIT %(rows)s
      ) AS s
    ) AS t
    WHERE t.bytes <= %(bytes)s OR t.place = 1
    ORDER BY t.archive_xid DESC, t.id DESC
    LIMIT 1
"""
AFTER = """
    SELECT count(*) AS rows, coalesce(extract(epoch FROM clock_timestamp() - min(w.archived_at)), 0)::float8 AS seconds
    FROM (
      SELECT a.archived_at
      FROM messages.message_archive AS a
      WHERE {condition}
      ORDER BY a.archive_xid, a.id
      LIMIT %(most)s
    ) AS w
"""
TOPICS = """
    SELECT count(DISTINCT w.topic)
    FROM (
      SELECT a.topic
      FROM messages.message_archive AS a
      WHERE {condition}
      ORDER BY a.archive_xid, a.id
      LIMIT %(most)s
    ) AS w
"""
ESTIMATE = """
    EXPLAIN (FORMAT JSON)
    SELECT FROM messages.message_archive AS a WHERE a.archive_xid >= %(xid)s::xid8 AND {condition}
"""
# This needs no rights on the partitions: it reads only their sizes.
SIZE = """
    SELECT
      coalesce(sum(c.reltuples) FILTER (WHERE c.reltuples > 0), 0)::bigint AS rows,
      coalesce(sum(pg_catalog.pg_relation_size(p.relid)), 0)::bigint / current_setting('block_size')::bigint AS pages
    FROM pg_catalog.pg_partition_tree('messages.message_archive') AS p
    JOIN pg_catalog.pg_class AS c ON c.oid = p.relid
    WHERE p.isleaf
"""
BOUNDS = """
    SELECT t.archive_xid::text, t.id
    FROM (
      SELECT a.archive_xid, a.id, row_number() OVER (ORDER BY a.archive_xid, a.id) AS place, count(*) OVER () AS total
      FROM messages.message_archive AS a {sample}
      WHERE {condition}
    ) AS t
    WHERE t.place %% greatest(ceil(t.total::numeric / %(parts)s)::bigint, %(least)s) = 0 AND t.place < t.total
    ORDER BY t.place
"""
# The newest messages of the topic; for a rare topic, those among the newest of all topics. Large ones are left out: the
# sample is held in memory.
PAYLOADS = """
    SELECT s.payload
    FROM (
      SELECT a.topic, a.result, a.payload
      FROM messages.message_archive AS a
      ORDER BY a.archive_xid DESC, a.id DESC
      LIMIT %(looked_at)s
    ) AS a
    CROSS JOIN LATERAL (SELECT a.payload::text) AS s (payload)
    WHERE a.topic = %(topic)s AND {condition}
      AND pg_column_size(a.payload) <= %(bytes)s AND octet_length(s.payload) <= %(bytes)s
    LIMIT %(rows)s
"""
LOOKED_AT = 100_000


@dataclass(frozen=True, slots=True)
class ArchiveSize:
    """How large the archive is. rows: by the statistics of PostgreSQL; 0 = there are none yet."""

    rows: int
    pages: int


@dataclass(frozen=True, slots=True)
class RowsAfter:
    """The rows after a position. seconds: the age of the oldest, or 0 if there are none."""

    rows: int
    seconds: float


def nth_row(start: Key, watermark: str, condition: str, rows: int) -> Call[Key | None]:
    """Read the key of the row with this number after a position and below a watermark; None if there are fewer."""
    return _end(NTH, start, watermark, condition, {"rows": rows})


def last_row(start: Key, watermark: str, condition: str) -> Call[Key | None]:
    """Read the key of the last row after a position and below a watermark; None if there is none."""
    return _end(LAST, start, watermark, condition, {})


def row_within_bytes(start: Key, watermark: str, condition: str, rows: int, bytes_: int) -> Call[Key | None]:
    """Read the key of the last row that fits into this number and stored size, at least one; None if there is none."""
    return _end(BY_BYTES, start, watermark, condition, {"rows": rows, "bytes": bytes_})


def _end(query: str, start: Key, watermark: str, condition: str, values: dict[str, int]) -> Call[Key | None]:
    below = BELOW_WATERMARK.format(condition=_placed(f"{between(start, None)} AND {condition}"))
    return Call(query.format(below=below).encode(), {"watermark": watermark, **values}, _first)


def rows_after(start: Key, condition: str, most: int) -> Call[list[RowsAfter]]:
    """Count the rows after a position, up to a number, and measure the age of the oldest: one row."""
    return query_call(
        AFTER.format(condition=_placed(f"{between(start, None)} AND {condition}")), RowsAfter, "", most=most
    )


def count_topics(condition: str) -> Call[int]:
    """Count the topics of the first rows, in the order of an export."""
    return Call(TOPICS.format(condition=_placed(condition)).encode(), {"most": LOOKED_AT}, value)


def estimate_rows_from(xid: str, condition: str) -> Call[int]:
    """Estimate how many rows were archived by this transaction and later ones, as the planner does."""
    return Call(ESTIMATE.format(condition=_placed(condition)).encode(), {"xid": xid}, _planned)


def archive_size() -> Call[list[ArchiveSize]]:
    """Read how large the archive is: one row."""
    return query_call(SIZE, ArchiveSize)


def row_bounds(condition: str, parts: int, least: int, percent: float | None = None) -> Call[list[Key]]:
    """Read the keys that divide rows into parts of about the same number.

    Args:
        condition: which rows.
        parts: the maximum number of parts.
        least: the minimum number of rows of a part.
        percent: the percentage of the pages that are looked at; None = all rows are counted.
    """
    sample = "" if percent is None else f"TABLESAMPLE SYSTEM ({percent})"
    statement = BOUNDS.format(sample=sample, condition=_placed(condition))
    return Call(statement.encode(), {"parts": parts, "least": least}, list)


def sample_payloads(topic: str, rows: int, bytes_: int, *, dead: bool = False) -> Call[list[str]]:
    """Read payloads of the newest messages of a topic, or of its dead ones: none larger than this."""
    statement = PAYLOADS.format(condition=DEAD if dead else "TRUE")
    values = {"topic": topic, "rows": rows, "bytes": bytes_, "looked_at": LOOKED_AT}
    return Call(statement.encode(), values, lambda found: [payload for (payload,) in found])


def _placed(condition: str) -> str:
    """Return a condition for a statement that has placeholders."""
    return condition.replace("%", "%%")


def _first(rows: Rows) -> Key | None:
    return next(iter(rows), None)


def _planned(rows: Rows) -> int:
    return int(value(rows)[0]["Plan"]["Plan Rows"])
