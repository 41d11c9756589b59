"""Reports on made-up archives: an ordinary day with a bad deploy, an empty, a crowded, and a hostile one."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from pyspark_pgrouse.report.build import ReportRequest, build_report
from pyspark_pgrouse.report.destination import Destination
from pyspark_pgrouse.report.slo import Slo
from pyspark_pgrouse.report.source import COLUMNS
from pyspark_pgrouse.report.window import Window

UNTIL = datetime(2026, 11, 22, 10, tzinfo=UTC)
DEPLOY = UNTIL - timedelta(hours=5)
DAY = Window(UNTIL - timedelta(days=1), UNTIL)
# A day with a deploy, after four weeks.
DEPLOYED = Window(DAY.since, UNTIL, mark=DEPLOY, read_since=UNTIL - timedelta(days=28))
TOPICS = ("order.placed", "mail.send", "invoice.render", "search.index", "webhook.deliver", "image.resize", "sms.send")
HOSTILE = (
    "</title><script>fetch('https://evil.example/')</script><img src=x onerror=alert(1)>\"'&{{ 7 * 7 }}\u202e\x1b[31m"
)
SLOS = (Slo.parse("99%:5s"), Slo.parse("order.placed=99.9%:2s"))
TRACE = (
    "Traceback (most recent call last):\n"
    '  File "/srv/app/handlers/mail.py", line 41, in send\n    smtp.send(message)\n'
    "ConnectionResetError: [Errno 104] Connection reset by peer"
)
ERRORS = (
    ("mail.send", TRACE),
    ("order.placed", "KeyError: 'customer_id'"),
    ("search.index", "no answer from 10.2.0.17"),
)
Message = dict[str, Any]


@dataclass(frozen=True)
class Source:
    """A made-up archive."""

    messages: Sequence[Message]
    name: str = "lake s3a://warehouse/queue"

    def read(self, window: Window) -> pa.RecordBatchReader:
        return pa.Table.from_pylist(list(self.messages), COLUMNS).to_reader()


def message(end: datetime, run_s: float = 1.0, wait_s: float = 0.0, **columns: Any) -> Message:
    """A message of topic t that was due, waited, ran, and ended with success."""
    begun = end - timedelta(seconds=run_s)
    due = begun - timedelta(seconds=wait_s)
    times = {"created_at": due, "available_at": due, "locked_at": begun, "archived_at": end}
    return {"id": 1, "topic": "t", "attempts": 1, "result": "success", "handled_by": "w"} | times | columns


def report(
    messages: Sequence[Message], window: Window = DAY, slos: Sequence[Slo] = (), source: str = Source.name
) -> str:
    """Return the page of an archive."""
    with TemporaryDirectory() as folder:
        build_report(ReportRequest(Source(messages, source), window, slos, Destination.at(folder)), lambda _: None)
        return Path(folder, "report.html").read_text()


@cache
def page_of(kind: Callable[[], str]) -> str:
    """Return the page of `rich`, `hostile`, `crowded` or `nothing`, made once: its charts take a second."""
    return kind()


def rich() -> str:
    """An ordinary day, with more failures and longer times after the deploy."""
    return report(ordinary(TOPICS + tuple(f"other-{i}" for i in range(18))), DEPLOYED, SLOS)


def ordinary(topics: Sequence[str], count: int = 3000) -> list[Message]:
    """The messages of a day and of the four weeks before it."""
    dice = random.Random(7)
    made = [_ordinary(dice, topics, k, UNTIL - timedelta(seconds=86400 * (k + 0.5) / count)) for k in range(count)]
    made += [_ordinary(dice, topics, k, DAY.since - timedelta(days=27 * (k + 0.5) / 1000)) for k in range(1000)]
    return made + [
        message(
            UNTIL - timedelta(hours=h),
            topic=topic,
            id=81_204_117,
            result="failed",
            error=error,
            error_fingerprint=f"{n:016x}",
        )
        for n, (topic, error) in enumerate(ERRORS)
        for h in ((4, 3, 2, 1) if n < 2 else (20, 9, 2))
    ]


def _ordinary(dice: random.Random, topics: Sequence[str], k: int, end: datetime) -> Message:
    place = min(int(dice.expovariate(0.35)), len(topics) - 1)
    late = 2.5 if end >= DEPLOY else 1.0
    died = dice.random() < 0.004 * (place + 1) * late
    return message(
        end,
        run_s=dice.lognormvariate(-3, 1.5) * late,
        wait_s=dice.lognormvariate(-4, 1),
        id=k,
        topic=topics[place],
        channel=dice.choice(("acme", "acme", "acme", "globex", "initech")) if place == 1 else None,
        attempts=dice.choice((1, 1, 1, 1, 1, 2, 3, 12)),
        handled_by=f"worker-{k % 8}.eu-west.internal",
        result=dice.choice(("failed", "rejected", "lock_expired", "expired")) if died else "success",
        error="invalid address: 'bob@'" if died else None,
        error_fingerprint="5f3a" if died else None,
    )


def nothing() -> str:
    """A window in which nothing ended."""
    return report([], DAY, source="lake /var/lake")


def crowded() -> str:
    """A thousand topics with long names, of which the page shows the busiest."""
    names = [f"tenant-{i:04}.events.customer.subscription.{'renewed' if i % 2 else 'cancelled'}" for i in range(1000)]
    each = [message(UNTIL - timedelta(seconds=60 * i + 1), topic=name) for i, name in enumerate(names)]
    return report([*each, *ordinary(names[:20])], DEPLOYED, SLOS)


def hostile() -> str:
    """Whatever a publisher can choose, chosen by an attacker."""
    made = [
        message(
            UNTIL - timedelta(minutes=n + 1),
            run_s=1.0 + 9 * (n < 30),
            **dict.fromkeys(("topic", "handled_by", "error_fingerprint"), HOSTILE),
            channel=HOSTILE if n % 2 else "",
            result="failed" if n < 60 else "success",
            error=f"{HOSTILE}\n{{% raw %}} {HOSTILE}",
            attempts=1 + n % 2,
        )
        for n in range(600)
    ]
    return report(made, DEPLOYED, (Slo(0.99, timedelta(seconds=5), HOSTILE),), HOSTILE)
