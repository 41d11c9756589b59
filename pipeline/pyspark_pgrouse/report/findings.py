"""What the page shows: rows of the tables, by the name under which its templates have them.

Their size is bounded by the number of buckets and of lines, never by that of messages or topics.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark_pgrouse.report.tables import NAMES, Tables, epoch_us

if TYPE_CHECKING:
    from pyspark_pgrouse.report.slo import Slo
    from pyspark_pgrouse.report.window import Window

Findings = dict[str, Any]
Row = dict[str, Any]
MOST_ATTEMPTS = 10  # this number of attempts and more are counted together
WEEKS = 4
LOOKBACKS_H = (1, 6)
BUSIEST = "ended_before + ended_after DESC, topic LIMIT $n"
# Statements that return many rows: how many the page shows, and the statement. `of` is how many there are.
LISTS = {
    "topics": (
        20,
        """
        SELECT f.*, l.* EXCLUDE (topic, messages), t.trend, count(*) OVER () AS of
        FROM failures AS f
        LEFT JOIN latency_by_topic AS l USING (topic)
        LEFT JOIN (
          SELECT topic, by_bucket(time, total_p99_s) AS trend FROM latency WHERE time IS NOT NULL GROUP BY topic
        ) AS t USING (topic)
        ORDER BY ended DESC, topic LIMIT $n""",
    ),
    "failing": (
        10,
        "SELECT *, count(*) OVER () AS of FROM failures WHERE dead > 0 ORDER BY dead DESC, topic LIMIT $n",
    ),
    "changes": (
        10,
        f"FROM comparison WHERE topic IS NOT NULL ORDER BY weight DESC, {BUSIEST}",
    ),
    **{
        name: (5, f"FROM comparison WHERE topic IS NOT NULL AND {column} > {least} ORDER BY {column} DESC, {BUSIEST}")
        for name, column, least in (
            ("slower", "slower", 1.1),
            ("failing_more", "more_dead", 0),
            ("costing_more", "busier", 0),
        )
    },
    "costs": (12, "SELECT *, count(*) OVER () AS of FROM cost ORDER BY run_s DESC, topic LIMIT $n"),
    "error_groups": (
        15,
        """
        SELECT f.*, before = 0 AND getvariable('is_compared') AS is_new, t.trend, count(*) OVER () AS of
        FROM fingerprints AS f
        LEFT JOIN (
          SELECT topic, fingerprint, by_bucket(time, messages) AS trend FROM fingerprint_trend GROUP BY ALL
        ) AS t USING (topic, fingerprint)
        ORDER BY is_new DESC, messages DESC, topic, fingerprint LIMIT $n""",
    ),
    "attempts": (
        MOST_ATTEMPTS + 1,
        """
        SELECT least(attempts, $n - 1) AS attempts, sum(messages)::BIGINT AS messages, sum(dead)::BIGINT AS dead
        FROM retries GROUP BY ALL ORDER BY ALL""",
    ),
    "skews": (
        8,
        "SELECT *, count(*) OVER () AS of FROM skew WHERE channels > 1 ORDER BY messages DESC, topic LIMIT $n",
    ),
    "busiest_workers": (
        12,
        """
        SELECT worker AS name, sum(busy) * getvariable('bucket_us') / getvariable('shown_us') AS mean,
               max(busy) AS most, count(*) OVER () AS of
        FROM capacity GROUP BY worker ORDER BY mean DESC, worker LIMIT $n""",
    ),
}
# Statements that return one row.
TOTALS = {
    "whole": """
        SELECT *, dead / nullif(ended - cancelled, 0) AS failure_rate
        FROM (SELECT coalesce(sum(ended), 0)::BIGINT AS ended, coalesce(sum(dead), 0)::BIGINT AS dead,
                     coalesce(sum(cancelled), 0)::BIGINT AS cancelled FROM failures)
        LEFT JOIN (SELECT * EXCLUDE (topic, time) FROM latency WHERE time IS NULL AND topic IS NULL) ON true""",
    "change": "FROM comparison WHERE topic IS NULL",
    "cost": """
        SELECT coalesce(sum(messages), 0)::BIGINT AS messages, coalesce(sum(retries), 0)::BIGINT AS retries,
               coalesce(sum(run_s), 0) AS run_s, coalesce(sum(failed_run_s), 0) AS failed_run_s
        FROM cost""",
    "errors": """
        SELECT count(*) AS count, count(*) FILTER (WHERE before = 0 AND getvariable('is_compared')) AS new
        FROM fingerprints""",
}
# Statements that return lines of charts: their names and their values by bucket.
LINES = {
    "throughput": """
        SELECT CASE WHEN topic IN (SELECT topic FROM failures ORDER BY ended DESC, topic LIMIT 7)
               THEN topic END AS name,
               bucket_s(time) AS bucket, sum(ended)::BIGINT AS value
        FROM throughput GROUP BY ALL""",
    "deaths": """
        SELECT name, bucket_s(time) AS bucket, sum(n)::BIGINT AS value
        FROM (UNPIVOT throughput ON failed, rejected, lock_expired, expired INTO NAME name VALUE n) GROUP BY ALL""",
    "latency": """
        SELECT name, bucket_s(time) AS bucket, value
        FROM (UNPIVOT (FROM latency WHERE topic IS NULL AND time IS NOT NULL)
              ON total_p50_s AS p50, total_p95_s AS p95, total_p99_s AS p99 INTO NAME name VALUE value)""",
    "held": """
        SELECT name, bucket, value
        FROM (UNPIVOT (SELECT bucket_s(time) AS bucket, sum(busy) AS busy, count(*)::DOUBLE AS workers
                       FROM capacity GROUP BY ALL)
              ON busy, workers INTO NAME name VALUE value)""",
}
# Each week with the week before it, for the topics with the most run time.
WEEK_TOTALS = """
    SELECT topic, map(list(epoch_us(week)), list(w)) AS weeks
    FROM (
      SELECT *, run_s / 3600 AS run_h, least(ended - cancelled, lag(ended - cancelled) OVER earlier) AS fewest,
             is_sure(lag(dead) OVER earlier, lag(ended - cancelled) OVER earlier, dead, ended - cancelled) AS is_sure
      FROM weeks WHERE epoch_us(week) >= $first WINDOW earlier AS (PARTITION BY topic ORDER BY week)
    ) AS w
    GROUP BY topic ORDER BY topic IS NOT NULL, sum(run_s) DESC, topic LIMIT $n"""
WEEK_TOPICS = 15


def collect_findings(tables: Tables, window: Window, asked: Window, slos: Sequence[Slo]) -> Findings:
    """Read the findings from the tables of a window. asked: the requested window, of which `window` may be a part."""
    weeks = asked.weeks()[-WEEKS:]
    return {
        "window": window,
        "asked": asked,
        **{name: tables.rows(query, n=shown) for name, (shown, query) in LISTS.items()},
        **{name: next(iter(tables.rows(query)), None) for name, query in TOTALS.items()},
        **{name: _lines(tables.rows(query)) for name, query in LINES.items()},
        "weeks": weeks,
        "week_totals": _week_totals(tables, weeks),
        # The one whose budget burned fastest comes first.
        "slos": sorted(
            (_slo(tables, slo, window, weeks) for slo in slos), key=lambda s: -(s["burns"][-1]["rate"] or 0)
        ),
        "tables": NAMES,
    }


def _lines(rows: Iterable[Row]) -> dict[str | None, dict[int, Any]]:
    lines: dict[str | None, dict[int, Any]] = {}
    for row in rows:
        lines.setdefault(row["name"], {})[row["bucket"]] = row["value"]
    return lines


def _week_totals(tables: Tables, weeks: Sequence[datetime]) -> list[tuple[str | None, list[Row | None]]]:
    """Return the totals of each week, for all topics (None) and for the topics that cost most in these weeks."""
    rows = tables.rows(WEEK_TOTALS, first=epoch_us(weeks[0]) if weeks else 0, n=WEEK_TOPICS + 1) if weeks else []
    return [(row["topic"], [row["weeks"].get(epoch_us(week)) for week in weeks]) for row in rows]


def _slo(tables: Tables, slo: Slo, window: Window, weeks: Sequence[datetime]) -> Row:
    """Return how an SLO was met in the last hours and, last, in the whole window; and by bucket and by week."""
    missed = """
        SELECT 'missed' AS name, bucket_s(time) AS bucket, 1 - sum(good) / sum(ended) AS value
        FROM slo WHERE slo = $name GROUP BY ALL"""
    met = "SELECT epoch_us(week) AS week, good / ended AS met FROM slo_weeks WHERE slo = $name"
    by_week = {row["week"]: row["met"] for row in tables.rows(met, name=slo.name)}
    looks = [*(float(hours) for hours in LOOKBACKS_H if hours * 3600 < window.seconds), window.seconds / 3600]
    burns = [burn_rate(tables, slo, window, hours) for hours in looks]
    return {
        "slo": slo,
        "burns": burns,
        "met": burns[-1]["good"] / burns[-1]["ended"] if burns[-1]["ended"] else None,
        "missed": _lines(tables.rows(missed, name=slo.name)).get("missed", {}),
        "weeks": [by_week.get(epoch_us(week)) for week in weeks],
    }


def burn_rate(tables: Tables, slo: Slo, window: Window, hours: float) -> Row:
    """Return how an SLO was met in the last hours of the window, and its burn rate.

    1 uses up exactly the whole budget; None = no message ended.
    """
    (row,) = tables.rows(
        "SELECT coalesce(sum(ended), 0)::BIGINT AS ended, coalesce(sum(good), 0)::BIGINT AS good "
        "FROM slo WHERE slo = $name AND epoch_us(time) >= $since",
        name=slo.name,
        since=epoch_us(window.until - timedelta(hours=hours)),
    )
    ended, good = row["ended"], row["good"]
    return row | {"hours": hours, "rate": (ended - good) / ended / slo.budget if ended else None}
