"""The checker: what must hold across all records, at any moment and at the end.

It compares four independent records: those of publishers (the ledger), the tables, those of the witness in the
database, and those of the handlers. Everything it finds is a defect. The rules have only the documented exception: a
crash of the server may take back a claim that may be repeated.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg.rows import namedtuple_row

from tests.faults.ledger import Group, Ledger
from tests.faults.topics import LASTING, RACED, TIMED

# All clocks are one clock here; this is its resolution.
GRAIN_S = 0.002
# How long after a claim its handler may begin at most: the answer was delayed by a stalled or frozen connection.
LATE_S = 60.0
SHOWN = 5

DEAD = "result NOT IN ('success', 'cancelled')"
LIMIT = "coalesce(m.max_attempts, t.max_attempts, d.max_attempts)"

# Each holds in every single snapshot: the statement returns what violates it.
OF_A_SNAPSHOT = {
    "a message is in both tables": """
        SELECT m.id FROM messages.message AS m
        WHERE EXISTS (SELECT FROM messages.message_archive AS a WHERE a.id = m.id)""",
    "a message is in the archive twice": """
        SELECT a.id, count(*) FROM messages.message_archive AS a GROUP BY a.id HAVING count(*) > 1""",
    "a message is in neither table": """
        SELECT w.id FROM witness AS w
        WHERE w.what = 'published' AND NOT EXISTS (SELECT FROM messages.message AS m WHERE m.id = w.id)
          AND NOT EXISTS (SELECT FROM messages.message_archive AS a WHERE a.id = w.id)""",
    "more run than max_concurrency allows": """
        SELECT m.topic, count(*) FROM messages.message AS m JOIN messages.topic AS t USING (topic)
        WHERE m.claim_id IS NOT NULL GROUP BY m.topic, t.max_concurrency HAVING count(*) > t.max_concurrency""",
    "more run on a worker than worker_concurrency allows": """
        SELECT m.topic, messages.worker_of(m.locked_by), count(*)
        FROM messages.message AS m JOIN messages.topic AS t USING (topic)
        WHERE m.claim_id IS NOT NULL GROUP BY m.topic, messages.worker_of(m.locked_by), t.worker_concurrency
        HAVING count(*) > t.worker_concurrency""",
    "more of a channel run than its limit allows": """
        SELECT m.topic, m.channel, count(*) FROM messages.message AS m JOIN messages.topic AS t USING (topic)
        WHERE m.claim_id IS NOT NULL AND m.channel IS NOT NULL
        GROUP BY m.topic, m.channel, t.ordered, t.channel_concurrency
        HAVING count(*) > CASE WHEN t.ordered THEN 1 ELSE t.channel_concurrency END""",
    "a key is ready twice": """
        SELECT m.topic, m.key, count(*) FROM messages.message AS m
        WHERE m.key IS NOT NULL AND m.attempts = 0 AND m.claim_id IS NULL
        GROUP BY m.topic, m.key HAVING count(*) > 1""",
    "a depth is not the number of messages": """
        SELECT * FROM (
          SELECT d.topic, d.rows,
                 (SELECT coalesce(sum(c.change), 0) FROM messages.depth_change AS c WHERE c.topic = d.topic) AS change,
                 (SELECT count(*) FROM messages.message AS m WHERE m.topic = d.topic) AS there
          FROM messages.depth AS d
        ) AS d
        WHERE d.rows + d.change <> d.there""",
    "a message has more attempts than it may have": f"""
        SELECT m.id, m.attempts FROM (
          SELECT id, topic, attempts, max_attempts FROM messages.message
          UNION ALL SELECT id, topic, attempts, max_attempts FROM messages.message_archive) AS m
        CROSS JOIN messages.topic AS d LEFT JOIN messages.topic AS t ON t.topic = m.topic
        WHERE d.topic = '*' AND m.attempts > {LIMIT} AND {LIMIT} > 0""",
    "the alerts do not add up to the dead messages": f"""
        SELECT topic, result, error_fingerprint, a.dead, o.alerted
        FROM (SELECT topic, result, coalesce(error_fingerprint, '') AS error_fingerprint, count(*) AS dead
              FROM messages.message_archive WHERE {DEAD} GROUP BY 1, 2, 3) AS a
        FULL JOIN (SELECT topic, result, coalesce(error_fingerprint, '') AS error_fingerprint, sum(count) AS alerted
              FROM messages.alert WHERE kind = 'dead_message' GROUP BY 1, 2, 3) AS o
              USING (topic, result, error_fingerprint)
        WHERE a.dead IS DISTINCT FROM o.alerted""",
    "an effect belongs to no success": """
        SELECT e.id, e.claim_id FROM effect AS e WHERE NOT EXISTS (
          SELECT FROM messages.message_archive AS a
          WHERE a.id = e.id AND a.claim_id = e.claim_id AND a.result = 'success')""",
    "an effect happened twice": "SELECT e.id, count(*) FROM effect AS e GROUP BY e.id HAVING count(*) > 1",
    "a success has no effect": """
        SELECT a.id FROM messages.message_archive AS a
        WHERE a.result = 'success' AND (a.payload ->> 'do' = 'effect' OR a.topic = 'batch')
          AND NOT EXISTS (SELECT FROM effect AS e WHERE e.id = a.id)""",
    "a redrive is not one message": """
        SELECT r.archived_id, r.message_id FROM messages.redrive_log AS r
        WHERE 1 <> (
          SELECT count(*) FROM messages.message AS m WHERE m.id = r.message_id AND m.redriven_from = r.archived_id)
                 + (SELECT count(*) FROM messages.message_archive AS m
                 WHERE m.id = r.message_id AND m.redriven_from = r.archived_id)""",
    "a dead letter is not one copy": f"""
        SELECT a.id, a.topic, coalesce(c.copies, 0) AS copies FROM messages.message_archive AS a
        JOIN messages.topic AS t ON t.topic = a.topic AND t.dead_letter
        LEFT JOIN (
          SELECT origin_id, count(*) AS copies FROM (
            SELECT origin_id, dlq_moved_at, redriven_from FROM messages.message
            UNION ALL SELECT origin_id, dlq_moved_at, redriven_from FROM messages.message_archive) AS m
          WHERE m.dlq_moved_at IS NOT NULL AND m.redriven_from IS NULL GROUP BY 1
        ) AS c ON c.origin_id = a.id
        WHERE a.{DEAD} AND c.copies IS DISTINCT FROM 1""",
}

# The witness's records, from the beginning to now: the statement returns what violates a rule.
OF_THE_WITNESS = {
    "a message did not end as one row in one transaction": """
        SELECT id, array_agg(what || ' ' || xid || ' ' || coalesce(claim_id::text, '-') ORDER BY nth) AS saw
        FROM witness WHERE what IN ('gone', 'archived') GROUP BY id
        HAVING count(*) FILTER (WHERE what = 'gone') <> 1 OR count(*) FILTER (WHERE what = 'archived') <> 1
            OR count(DISTINCT xid) <> 1 OR count(DISTINCT coalesce(claim_id, 0)) <> 1
            OR count(DISTINCT attempts) <> 1""",
    "a message was published twice, or lived on after its end": """
        SELECT id FROM witness GROUP BY id
        HAVING count(*) FILTER (WHERE what = 'published') <> 1
            OR min(nth) FILTER (WHERE what = 'gone') < max(nth) FILTER (WHERE what NOT IN ('gone', 'archived'))""",
    "a lock was taken over, or cut, or its attempt recounted": "SELECT * FROM witness "
    "WHERE what IN ('taken', 'shortened', 'recounted')",
    "a claim counts no attempt": "SELECT * FROM witness WHERE what = 'claimed' AND new_attempts <> attempts + 1",
    "an attempt that ended was not counted": """
        SELECT * FROM witness WHERE what = 'freed'
          AND new_attempts <> attempts - CASE WHEN ended IN ('failed', 'lock_expired') THEN 0 ELSE 1 END""",
    "an attempt ended that never began": """
        SELECT e.* FROM witness AS e WHERE e.what IN ('freed', 'gone') AND e.claim_id IS NOT NULL AND 1 <> (
          SELECT count(*) FROM witness AS c
          WHERE c.id = e.id AND c.what = 'claimed' AND c.new_claim_id = e.claim_id)""",
    "an attempt began before the one before had ended": """
        SELECT * FROM (
          SELECT w.*, lag(what) OVER (PARTITION BY id ORDER BY nth) AS before FROM witness AS w
          WHERE what IN ('claimed', 'freed', 'gone')
        ) AS w WHERE what = 'claimed' AND before NOT IN ('freed')""",
    "a lock was reported as expired before it was": """
        SELECT e.* FROM witness AS e
        LEFT JOIN witness AS a ON a.id = e.id AND e.what = 'gone' AND a.what = 'archived'
        WHERE e.what IN ('freed', 'gone') AND coalesce(e.ended, a.ended) = 'lock_expired'
          AND e.lock_expires_at > e.at AND NOT (e.topic = ANY (%(timed)s))""",
    "more ran at once than the limit allows": """
        WITH step AS (
          SELECT topic, NULL AS channel, at, nth, (what = 'claimed')::int - (what <> 'claimed')::int AS d,
                 t.max_concurrency AS most
          FROM witness JOIN messages.topic AS t USING (topic)
          WHERE t.max_concurrency > 0 AND (what = 'claimed' OR (what IN ('freed', 'gone') AND claim_id IS NOT NULL))
          UNION ALL
          SELECT topic, channel, at, nth, (what = 'claimed')::int - (what <> 'claimed')::int,
                 CASE WHEN t.ordered THEN 1 ELSE t.channel_concurrency END
          FROM witness JOIN messages.topic AS t USING (topic)
          WHERE (t.ordered OR t.channel_concurrency > 0) AND channel IS NOT NULL
            AND (what = 'claimed' OR (what IN ('freed', 'gone') AND claim_id IS NOT NULL))
        ), run AS (
          SELECT *, sum(d) OVER (PARTITION BY topic, channel ORDER BY at, d, nth) AS running FROM step
        )
        SELECT topic, channel, at, running, most FROM run WHERE running > most""",
    "more was claimed than its rate allows": """
        WITH claims AS (
          SELECT topic, locked_at, row_number() OVER (PARTITION BY topic ORDER BY locked_at, nth) AS n,
                 t.dequeue_rate AS rate, t.burst
          FROM witness JOIN messages.topic AS t USING (topic) WHERE what = 'claimed' AND t.dequeue_rate > 0
        ), ahead AS (
          -- n claims until then: of all windows that end here, the one that exceeds the rate most.
          SELECT *, n - rate * extract(epoch FROM locked_at)
                    - min(
                      n - 1 - rate * extract(epoch FROM locked_at)
                    ) OVER (PARTITION BY topic ORDER BY locked_at, n) AS most
          FROM claims
        )
        SELECT topic, locked_at, most, burst FROM ahead WHERE most > burst + 1""",
}
ENDS: dict[str, str] = {"success": "success", "rejected": "rejected", "failed": "failed", "deferred": "deferred"}


@dataclass
class Finding:
    """A violated rule, and the rows that violate it."""

    rule: str
    what: list[Any]

    def __str__(self) -> str:
        more = f" and {len(self.what) - SHOWN} more" if len(self.what) > SHOWN else ""
        return f"{self.rule}: " + "; ".join(map(str, self.what[:SHOWN])) + more


@dataclass
class Checker:
    """Checks one run.

    Attributes:
        ledger: the records of publishers and operators.
        crashes: when the server crashed, by the wall clock.
    """

    ledger: Ledger
    crashes: list[float] = field(default_factory=list)
    _seen: int = 0

    def check(self, conn: psycopg.Connection[Any]) -> list[Finding]:
        """Check one snapshot, whatever is in progress."""
        # Facts that are known before the snapshot is taken must be in it.
        known, self._seen = self.ledger.committed[self._seen :], len(self.ledger.committed)
        with conn.transaction():
            conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            return [*_violated(conn, OF_A_SNAPSHOT), *self._missing(conn, known)]

    def check_all(self, conn: psycopg.Connection[Any], journal: list[dict[str, Any]]) -> list[Finding]:
        """Check all records, when everything has stopped."""
        self._seen = 0
        handlers = _Handlers(conn, journal, self.crashes)
        return [
            *self.check(conn),
            *_violated(conn, OF_THE_WITNESS, timed=list(TIMED)),
            *_found("a tag is not in the tables as often as it should be", self._wrong_tags(conn)),
            *_found("what was cancelled did not end as cancelled", self._not_cancelled(conn)),
            *_found("a channel was not processed in order", self._out_of_order(conn)),
            *handlers.findings(),
        ]

    def left(self, conn: psycopg.Connection[Any]) -> list[Finding]:
        """Check what is left when all is processed.

        Nothing is locked, and for each message there is a reason why it waits.
        """
        rows = _rows(
            conn,
            """
            SELECT m.id, m.topic, m.claim_id IS NOT NULL AS locked, e.code, e.reason,
                   m.claim_id IS NULL AND m.available_at < w.at AS hidden
            FROM messages.message AS m CROSS JOIN LATERAL messages.explain(m.id) AS e
            LEFT JOIN messages.low_water AS w
              ON w.topic = m.topic AND w.priority = CASE WHEN m.channel IS NULL THEN m.priority ELSE -1 END
            """,
        )
        expected = {topic: {"unhandled"} for topic in ("unhandled", "lettered.dlq", *RACED)}
        codes: dict[int, set[str]] = defaultdict(set)
        for row in rows:
            codes[row.id].add(row.code)
        return [
            *_found("a message is locked although no worker runs", [row for row in rows if row.locked]),
            *_found("a message is below the low-water mark", [row for row in rows if row.hidden]),
            *_found(
                "there is no reason why a message waits",
                [r for r in rows if not r.locked and not codes[r.id] & expected.get(r.topic, set())],
            ),
        ]

    def _missing(self, conn: psycopg.Connection[Any], groups: list[Group]) -> Iterator[Finding]:
        """Committed publishes are in the tables exactly once."""
        ids = [each for group in groups for each in group.ids]
        rows = _rows(
            conn,
            """
            SELECT k.id FROM unnest(%s::bigint[]) AS k (id)
            WHERE 1 <> (SELECT count(*) FROM messages.message AS m WHERE m.id = k.id)
                     + (SELECT count(*) FROM messages.message_archive AS a WHERE a.id = k.id)
            """,
            [ids],
        )
        yield from _found("a committed publish is not in exactly one table", rows)

    def _wrong_tags(self, conn: psycopg.Connection[Any]) -> Iterator[str]:
        rows = _rows(
            conn,
            """
            SELECT m.payload ->> 'tag' AS tag, count(*) AS count FROM (
              SELECT payload FROM messages.message WHERE redriven_from IS NULL AND origin_id IS NULL
              UNION ALL SELECT payload FROM messages.message_archive WHERE redriven_from IS NULL AND origin_id IS NULL
            ) AS m GROUP BY 1
            """,
        )
        there = {row.tag: row.count for row in rows}
        known = {tag for group in self._groups() for tag in group.tags}
        yield from (f"{tag}: it was never published" for tag in there if tag not in known)
        for group in self._groups():
            counts = {there.get(tag, 0) for tag in group.tags}
            if not counts <= {0, 1} or (len(counts) > 1 and not group.merges):
                yield f"{group}: partly there, or twice"
        yield from (
            f"{g}: committed and not there" for g in self.ledger.committed if not g.merges and not there.get(g.tags[0])
        )
        yield from (f"{g}: refused and there" for g in self.ledger.refused if there.get(g.tags[0]))

    def _groups(self) -> list[Group]:
        return [*self.ledger.committed, *self.ledger.unknown, *self.ledger.refused]

    def _not_cancelled(self, conn: psycopg.Connection[Any]) -> list[Any]:
        return _rows(
            conn,
            """
            SELECT k.id FROM unnest(%s::bigint[]) AS k (id) WHERE NOT EXISTS (
              SELECT FROM messages.message_archive AS a WHERE a.id = k.id AND a.result = 'cancelled')
            """,
            [self.ledger.cancelled],
        )

    def _out_of_order(self, conn: psycopg.Connection[Any]) -> Iterator[str]:
        """The second of two messages of an ordered channel began before the first had ended."""
        rows = _rows(
            conn,
            """
            SELECT id, min(nth) FILTER (WHERE what = 'claimed') AS began, min(nth) FILTER (WHERE what = 'gone') AS ended
            FROM witness WHERE topic = 'line' GROUP BY id
            """,
        )
        seen = {row.id: row for row in rows}
        channels: dict[str, list[Group]] = defaultdict(list)
        for group in self.ledger.committed:
            if group.topic == "line" and group.channel:
                channels[group.channel].append(group)
        for channel, groups in channels.items():
            latest: Any = None
            for group in groups:
                row = seen.get(group.ids[0])
                if latest and row and row.began and (latest.ended is None or row.began < latest.ended):
                    yield f"{channel}: {row.id} began before {latest.id} had ended"
                latest = row or latest


class _Handlers:
    """What the handlers recorded, compared with the witness."""

    def __init__(self, conn: psycopg.Connection[Any], journal: list[dict[str, Any]], crashes: list[float]) -> None:
        self.crashes = crashes
        self.starts = [e for e in journal if e["what"] == "start"]
        self.begun = {(e["id"], e["claim"]): e["at"] for e in reversed(self.starts)}
        self.reported: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
        for entry in journal:
            if entry["what"] == "reported":
                self.reported[entry["id"], entry["claim"]].append(entry)
        self.stepped = [e for e in journal if e["what"] == "stepped"]
        self.kept = {
            (row.id, row.step): row.at
            for row in _rows(conn, "SELECT id, step, extract(epoch FROM min(at))::float8 AS at FROM kept GROUP BY 1, 2")
        }
        self.claimed = {
            (row.id, row.new_claim_id)
            for row in _rows(conn, "SELECT id, new_claim_id FROM witness WHERE what = 'claimed'")
        }
        self.ends = _rows(
            conn,
            """
            SELECT e.id, e.claim_id, e.topic, extract(epoch FROM e.at)::float8 AS at,
                   coalesce(a.ended, e.ended) AS ended,
                   coalesce(a.error, e.error) AS error
            FROM witness AS e LEFT JOIN witness AS a ON a.id = e.id AND a.what = 'archived' AND e.what = 'gone'
            WHERE e.what IN ('freed', 'gone') AND e.claim_id IS NOT NULL
            """,
        )

    def findings(self) -> list[Finding]:
        """Return what does not agree."""
        twice: dict[int, set[int]] = defaultdict(set)
        for entry in self.starts:
            if entry["topic"] == "first":
                twice[entry["id"]].add(entry["claim"])
        runs = [(e["id"], e["claim"]) for e in self.starts if e["topic"] != "batch"]
        return [
            *_found("a step was done again although it is saved", self._done_again()),
            *_found("a handler began without a claim", [e for e in self.starts if self._without_a_claim(e)]),
            *_found(
                "an attempt ended as its handler never reported", [e for e in self.ends if self._was_not_reported(e)]
            ),
            *_found("a message of ack_first was begun twice", [i for i, claims in twice.items() if len(claims) > 1]),
            *_found(
                "a claim ran its handler twice",
                sorted({run for run in runs if runs.count(run) > 1}) if _repeats(runs) else [],
            ),
        ]

    def _done_again(self) -> list[dict[str, Any]]:
        never = math.inf
        return [e for e in self.stepped if e["at"] > self.kept.get((e["id"], e["step"]), never) + GRAIN_S]

    def _without_a_claim(self, entry: dict[str, Any]) -> bool:
        if (entry["id"], entry["claim"]) in self.claimed:
            return False
        taken_back = any(entry["at"] - LATE_S < crash < entry["at"] + LATE_S for crash in self.crashes)
        return not taken_back or entry["topic"] in LASTING

    def _was_not_reported(self, end: Any) -> bool:
        if end.topic == "first" or end.ended not in ENDS or (end.error or "").startswith("skipped"):
            return False
        if end.ended == "rejected" and (end.error or "").startswith("payload cannot be decoded"):
            return False  # no handler could begin
        reports = self.reported[end.id, end.claim_id]
        return not any(e["how"] == end.ended and e["at"] <= end.at + GRAIN_S for e in reports)


def _repeats(runs: list[Any]) -> bool:
    return len(runs) != len(set(runs))


def _violated(conn: psycopg.Connection[Any], rules: dict[str, str], **values: Any) -> Iterator[Finding]:
    for rule, statement in rules.items():
        yield from _found(rule, _rows(conn, statement, values or None))


def _found(rule: str, what: Any) -> Iterator[Finding]:
    if found := list(what):
        yield Finding(rule, found)


def _rows(conn: psycopg.Connection[Any], statement: str, values: Any = None) -> list[Any]:
    return conn.cursor(row_factory=namedtuple_row).execute(statement.encode(), values).fetchall()
