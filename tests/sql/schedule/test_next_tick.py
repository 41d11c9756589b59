"""The next and the latest ticks of a schedule."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import errors

from tests.sql.queue import Queue

# messages.next_tick: when a cron expression ticks next, in a time zone.

BERLIN = "Europe/Berlin"
# Changes of the clocks by an hour, by half of one, at midnight, in the south, twice in a month, and by a whole skipped
# day.
ZONES = [
    BERLIN,
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Sao_Paulo",
    "Africa/Cairo",
    "Africa/Casablanca",
    "Asia/Kathmandu",
    "Pacific/Apia",
    "UTC",
]


def ticks(queue: Queue, cron: str, after: datetime, zone: str = "UTC", count: int = 1) -> list[datetime]:
    """Return the next ticks."""
    found = []
    for _ in range(count):
        after = queue.call("next_tick", cron, zone, after)
        found.append(after)
    return found


def tick(queue: Queue, cron: str, after: str, zone: str = "UTC") -> str:
    """Return the next tick as the clocks of the zone show it. `after` is a time of that zone, or has its offset."""
    moment = datetime.fromisoformat(after)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=ZoneInfo(zone))
    (found,) = ticks(queue, cron, moment, zone)
    return found.astimezone(ZoneInfo(zone)).isoformat(timespec="minutes")


NEXT_TICKS = [
    ("* * * * *", "2026-01-31T23:59", "2026-02-01T00:00+00:00"),
    ("*/15 * * * *", "2026-01-01T00:14:59.999999", "2026-01-01T00:15+00:00"),
    ("*/15 * * * *", "2026-01-01T00:15", "2026-01-01T00:30+00:00"),
    ("5,35 8-10/2 * * *", "2026-01-01T08:35", "2026-01-01T10:05+00:00"),
    ("0 0 1 1 *", "2026-01-01T00:00", "2027-01-01T00:00+00:00"),
    ("0 9 * * mon-fri", "2026-11-20T09:00", "2026-11-23T09:00+00:00"),
    ("0 9 * * 7", "2026-11-21T00:00", "2026-11-22T09:00+00:00"),
    ("0 9 * * SUN", "2026-11-21T00:00", "2026-11-22T09:00+00:00"),
    ("0 9 * * 5-7", "2026-11-20T10:00", "2026-11-21T09:00+00:00"),
    ("0 0 * FEB,apr *", "2026-02-28T00:00", "2026-04-01T00:00+00:00"),
    ("0 0 29 2 *", "2026-01-01T00:00", "2028-02-29T00:00+00:00"),
    ("0 0 29 2 *", "2096-03-01T00:00", "2104-02-29T00:00+00:00"),
    ("0 0 L * *", "2026-02-01T00:00", "2026-02-28T00:00+00:00"),
    ("0 0 $ 2 *", "2028-02-01T00:00", "2028-02-29T00:00+00:00"),
    ("10/20 * * * *", "2026-01-01T00:30", "2026-01-01T00:50+00:00"),
    ("@hourly", "2026-01-01T00:30", "2026-01-01T01:00+00:00"),
    ("@daily", "2026-01-01T00:00", "2026-01-02T00:00+00:00"),
    ("@midnight", "2026-01-01T00:00", "2026-01-02T00:00+00:00"),
    ("@weekly", "2026-01-01T00:00", "2026-01-04T00:00+00:00"),
    ("@monthly", "2026-01-01T00:00", "2026-02-01T00:00+00:00"),
    ("@yearly", "2026-01-01T00:00", "2027-01-01T00:00+00:00"),
    ("@Annually", "2026-01-01T00:00", "2027-01-01T00:00+00:00"),
    ("  0\t9  * *  * ", "2026-01-01T00:00", "2026-01-01T09:00+00:00"),
]


def test_the_next_tick_is_the_first_match_after_the_given_time(queue: Queue) -> None:
    for cron, after, expected in NEXT_TICKS:
        assert (cron, after, tick(queue, cron, after)) == (cron, after, expected)


@pytest.mark.parametrize(
    ("cron", "after", "expected"),
    [
        ("*/10 * * * * *", "2026-01-31T23:59:50", "2026-02-01T00:00:00"),
        ("*/10 * * * * *", "2026-01-01T00:00:09.999999", "2026-01-01T00:00:10"),
        ("30 * * * * *", "2026-01-01T00:00:30", "2026-01-01T00:01:30"),
        ("5,50 59 23 31 12 *", "2026-12-31T23:59:05", "2026-12-31T23:59:50"),
        ("5,50 59 23 31 12 *", "2026-12-31T23:59:50", "2027-12-31T23:59:05"),
        ("59 59 23 L feb *", "2028-02-01T00:00", "2028-02-29T23:59:59"),
        ("0 0 9 * * mon-fri", "2026-11-20T09:00", "2026-11-23T09:00:00"),
        ("20-22/2 0 12 13 * fri", "2026-11-06T12:00:22", "2026-11-13T12:00:20"),
        ("  15\t0 9 * *  * ", "2026-01-01T09:00:14", "2026-01-01T09:00:15"),
    ],
)
def test_with_six_fields_the_first_one_is_the_second(queue: Queue, cron: str, after: str, expected: str) -> None:
    (found,) = ticks(queue, cron, datetime.fromisoformat(after).replace(tzinfo=UTC))

    assert found == datetime.fromisoformat(expected).replace(tzinfo=UTC)


def test_five_fields_tick_at_second_0(queue: Queue) -> None:
    after = datetime(2026, 1, 1, 8, 59, 30, tzinfo=UTC)

    assert ticks(queue, "* * * * *", after, count=3) == ticks(queue, "0 * * * * *", after, count=3)


def test_a_day_matches_by_month_or_by_week_if_both_are_given(queue: Queue) -> None:
    found = ticks(queue, "0 0 13 * fri", datetime(2026, 11, 1, tzinfo=UTC), count=4)

    assert [each.day for each in found] == [6, 13, 20, 27]


def test_a_day_must_match_both_if_one_of_them_begins_with_a_star(queue: Queue) -> None:
    found = ticks(queue, "0 0 */10 * fri", datetime(2026, 1, 1, tzinfo=UTC), count=3)

    assert [each.date().isoformat() for each in found] == ["2026-05-01", "2026-07-31", "2026-08-21"]


@pytest.mark.parametrize("cron", ["0 0 30 2 *", "0 0 31 2,4,6,9,11 *", "0 0 31 4 */1"])
def test_a_day_that_never_occurs_is_null_after_a_bounded_search(queue: Queue, cron: str) -> None:
    began = queue.value("SELECT clock_timestamp()")

    assert ticks(queue, cron, datetime(2026, 1, 1, tzinfo=UTC)) == [None]
    assert queue.value("SELECT clock_timestamp() - %s < interval '30 s'", [began]) is True


def test_a_day_that_occurs_once_in_forty_years_is_found(queue: Queue) -> None:
    # A Sunday, 29 February, past the year 2100 that is no leap year.
    assert tick(queue, "0 0 29 2 */7", "2088-02-29T00:00") == "2128-02-29T00:00+00:00"


# Intervals


@pytest.mark.parametrize(
    ("cron", "after", "expected"),
    [
        ("30 seconds", "2026-01-01T00:00:29.9Z", "2026-01-01T00:00:30Z"),
        ("30 seconds", "2026-01-01T00:00:30Z", "2026-01-01T00:01:00Z"),
        ("1 second", "2026-01-01T00:00:00.000001Z", "2026-01-01T00:00:01Z"),
        ("90 seconds", "1970-01-01T00:01:30Z", "1970-01-01T00:03:00Z"),
    ],
)
def test_an_interval_ticks_at_multiples_since_the_epoch(queue: Queue, cron: str, after: str, expected: str) -> None:
    found = ticks(queue, cron, datetime.fromisoformat(after), BERLIN)

    assert found == [datetime.fromisoformat(expected)]


# Changes of the clocks


@pytest.mark.every_server
def test_a_skipped_fixed_time_ticks_at_the_first_moment_after_the_gap(queue: Queue) -> None:
    for cron in ("0 2 * * *", "30 2 * * *", "59 2 * * *", "30 2 29 3 *"):
        assert (cron, tick(queue, cron, "2026-03-28T12:00", BERLIN)) == (cron, "2026-03-29T03:00+02:00")


@pytest.mark.every_server
@pytest.mark.parametrize(
    ("cron", "after", "expected"),
    [
        # A fixed time that is skipped: once, at the first moment after the gap.
        ("10,40 30 2 * * *", "2026-03-28T12:00:00", ["2026-03-29T03:00:00+02:00", "2026-03-30T02:30:10+02:00"]),
        # One that the clocks show twice: the first time only.
        ("30 30 2 * * *", "2026-10-24T12:00:00", ["2026-10-25T02:30:30+02:00", "2026-10-26T02:30:30+01:00"]),
        # With a star in second, minute or hour: whenever the clocks show it.
        ("*/30 59 1,2 * * *", "2026-03-28T12:00:00", ["2026-03-29T01:59:00+01:00", "2026-03-29T01:59:30+01:00"]),
        ("*/30 30 2 * * *", "2026-03-28T12:00:00", ["2026-03-30T02:30:00+02:00", "2026-03-30T02:30:30+02:00"]),
        ("* * * * * *", "2026-03-29T01:59:58", ["2026-03-29T01:59:59+01:00", "2026-03-29T03:00:00+02:00"]),
        ("* * * * * *", "2026-10-25T02:59:58", ["2026-10-25T02:59:59+02:00", "2026-10-25T02:00:00+01:00"]),
        ("5 * * * * *", "2026-10-25T02:59:00", ["2026-10-25T02:59:05+02:00", "2026-10-25T02:00:05+01:00"]),
    ],
)
def test_when_clocks_are_changed_seconds_follow_the_rules_of_minutes(
    queue: Queue, cron: str, after: str, expected: list[str]
) -> None:
    berlin = ZoneInfo(BERLIN)

    found = ticks(queue, cron, datetime.fromisoformat(after).replace(tzinfo=berlin), BERLIN, count=2)

    assert [each.astimezone(berlin).isoformat() for each in found] == expected


@pytest.mark.parametrize(
    ("cron", "after"),
    [
        ("* * * * * *", datetime(2026, 3, 29, 0, 59, 59, tzinfo=UTC)),
        ("0-59 0-59 2,3 * * *", datetime(2026, 10, 25, 1, 0, 0, tzinfo=UTC)),
    ],
)
def test_a_change_of_clocks_is_passed_in_a_few_steps_and_not_in_one_for_each_second(
    queue: Queue, cron: str, after: datetime
) -> None:
    """Each of these steps past an hour of matching seconds: that the clocks skip, or have shown before."""
    queue.conn.execute("SET track_functions = 'all'")
    count = (
        "SELECT pg_stat_get_xact_function_calls('messages.next_cron_match(bigint[],boolean,timestamp)'::regprocedure)"
    )
    with queue.conn.transaction():
        ticks(queue, cron, after, BERLIN)
        steps = queue.value(count)

    assert 1 <= steps <= 4


def test_several_times_in_one_gap_tick_once(queue: Queue) -> None:
    found = ticks(queue, "0,20,40 2,3 * * *", datetime(2026, 3, 29, 0, 59, tzinfo=UTC), BERLIN, count=3)

    assert [each.isoformat(timespec="minutes") for each in found] == [
        f"2026-03-29T01:{minute}+00:00" for minute in ("00", "20", "40")
    ]


def test_a_fixed_time_that_occurs_twice_ticks_the_first_time_only(queue: Queue) -> None:
    first, second = ticks(queue, "30 2 * * *", datetime(2026, 10, 24, 12, tzinfo=UTC), BERLIN, count=2)

    assert first == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    assert second == datetime(2026, 10, 26, 1, 30, tzinfo=UTC)


def test_hourly_expressions_tick_in_every_hour_that_passes(queue: Queue) -> None:
    for day in (datetime(2026, 3, 28, 20, tzinfo=UTC), datetime(2026, 10, 24, 20, tzinfo=UTC)):
        found = ticks(queue, "0 * * * *", day, BERLIN, count=12)

        assert found == [day + timedelta(hours=n) for n in range(1, 13)]


@pytest.mark.every_server
def test_a_gap_at_midnight_moves_the_beginning_of_the_day(queue: Queue) -> None:
    assert tick(queue, "@daily", "2018-11-03T12:00", "America/Sao_Paulo") == "2018-11-04T01:00-02:00"


@pytest.mark.every_server
def test_a_skipped_day_ticks_when_the_next_one_begins(queue: Queue) -> None:
    assert tick(queue, "0 12 30 12 *", "2011-12-01T00:00", "Pacific/Apia") == "2011-12-31T00:00+14:00"


# Invalid expressions


def test_an_unreadable_expression_is_refused_with_the_fix(queue: Queue) -> None:
    with pytest.raises(errors.InvalidParameterValue, match='cron: hour is "25"') as caught:
        tick(queue, "0 25 * * *", "2026-01-01T00:00")

    assert str(caught.value.diag.message_hint).startswith("use * or 0 to 23")


@pytest.mark.every_server
def test_an_unknown_time_zone_is_refused(queue: Queue) -> None:
    with pytest.raises(errors.InvalidParameterValue, match='time zone "Mars/Base" not recognized'):
        ticks(queue, "@daily", datetime(2026, 1, 1, tzinfo=UTC), "Mars/Base")


# Comparisons with other implementations


def field(low: int, high: int) -> st.SearchStrategy[str]:
    """A field of a cron expression."""
    number = st.integers(low, high)
    # The other one takes 3-3/2 for 3/2.
    rising = st.lists(number, min_size=2, max_size=2, unique=True).map(sorted)
    step = st.integers(1, high)
    item = st.one_of(
        st.just("*"),
        number.map(str),
        rising.map(lambda r: f"{r[0]}-{r[1]}"),
        step.map(lambda s: f"*/{s}"),
        st.tuples(rising, step).map(lambda t: f"{t[0][0]}-{t[0][1]}/{t[1]}"),
    )
    return st.one_of(st.just("*"), item, st.lists(item, min_size=1, max_size=3).map(",".join))


FIVE = (
    *(field(0, 59), field(0, 23)),
    *(field(1, 31) | st.just("L"), field(1, 12) | st.just("feb"), field(0, 7) | st.just("sun")),
)
CRONS = (st.tuples(*FIVE) | st.tuples(field(0, 59), *FIVE)).map(" ".join)
EARLIEST, LATEST = datetime(1990, 1, 1), datetime(2090, 1, 1)  # noqa: DTZ001
MOMENTS = st.datetimes(EARLIEST, LATEST).map(lambda moment: moment.replace(tzinfo=UTC))


@pytest.mark.long
@given(cron=CRONS, after=MOMENTS)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_it_agrees_with_another_implementation(queue: Queue, cron: str, after: datetime) -> None:
    try:
        expected = next(CronSim(cron, after), None)
    except Exception:  # noqa: BLE001 - it refuses some of the days that never occur
        expected = None

    assert ticks(queue, cron, after) == [expected]


# Expressions that tick within a few days, so that walking minute by minute ends.
NEAR = st.tuples(field(0, 59), field(0, 23), st.just("*"), st.just("*"), field(0, 7)).map(" ".join)


def changes(zone: str) -> list[datetime]:
    """Return the hours after which the clocks of a zone change, by comparing the days first."""
    days = [datetime(2005, 1, 1, tzinfo=UTC) + timedelta(days=n) for n in range(365 * 20)]
    offsets = [day.astimezone(ZoneInfo(zone)).utcoffset() for day in days]
    hours = [
        day + timedelta(hours=n)
        for day, before, after in zip(days, offsets, offsets[1:], strict=False)
        if before != after
        for n in range(24)
    ]
    moved = timedelta(hours=1)
    return [
        hour
        for hour in hours
        if hour.astimezone(ZoneInfo(zone)).utcoffset() != (hour + moved).astimezone(ZoneInfo(zone)).utcoffset()
    ]


CHANGES = {zone: changes(zone) for zone in ZONES if zone not in ("UTC", "Asia/Kathmandu")}


@given(
    cron=NEAR,
    moment_of_change=st.sampled_from([(zone, moment) for zone, moments in CHANGES.items() for moment in moments]),
    minutes=st.integers(-36 * 60, 6 * 60),
)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_around_every_change_of_clocks_it_agrees_with_a_walk_through_all_minutes(
    queue: Queue, cron: str, moment_of_change: tuple[str, datetime], minutes: int
) -> None:
    zone, change = moment_of_change
    after = change + timedelta(minutes=minutes)

    expected = list(islice(walk(cron, after, zone, days=9), 4))

    assert ticks(queue, cron, after, zone, len(expected)) == expected


# Those whose next four ticks come within a few hours: the walk goes second by second.
SECONDS = st.tuples(field(0, 59), field(0, 59), st.sampled_from(["*", "0-4", "1,2,3", "*/2", "22-23,0-3"])).map(
    lambda fields: " ".join((*fields, "* * *"))
)


@pytest.mark.long
@given(
    cron=SECONDS,
    moment_of_change=st.sampled_from([(zone, moment) for zone, moments in CHANGES.items() for moment in moments]),
    seconds=st.integers(-2 * 3600, 3 * 3600),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_around_every_change_of_clocks_seconds_agree_with_a_walk_through_all_of_them(
    queue: Queue, cron: str, moment_of_change: tuple[str, datetime], seconds: int
) -> None:
    zone, change = moment_of_change
    after = change + timedelta(seconds=seconds)

    expected = list(islice(walk(cron, after, zone, days=1), 4))

    assert ticks(queue, cron, after, zone, len(expected)) == expected


# Clocks are set back by less.
REPEATED = timedelta(hours=4)


def walk(cron: str, after: datetime, zone: str, days: int = 4) -> Iterator[datetime]:
    """Yield the ticks by reading the local time at every minute, or every second of six fields, for some days."""
    fields = cron.split()
    unit = timedelta(seconds=1) if len(fields) == 6 else timedelta(minutes=1)
    fields = fields if len(fields) == 6 else ["0", *fields]
    second, minute, hour, _, _, weekday = (
        set(_numbers(f, n)) for f, n in zip(fields, (59, 59, 23, 31, 12, 7), strict=True)
    )
    weekday = {each % 7 for each in weekday}
    fixed = not any(each.startswith("*") for each in fields[:3])
    clocks = ZoneInfo(zone)
    # Ticks shortly before `after` are needed too: they show whether a local time occurred already.
    shown: set[datetime] = set()
    at = after.replace(second=0, microsecond=0) - REPEATED
    before = (at - unit).astimezone(clocks).replace(tzinfo=None)
    while at < after + timedelta(days=days):
        local = at.astimezone(clocks).replace(tzinfo=None)
        due = [local]
        if fixed and local > before + unit:  # set forward: skipped times are due as well
            due += [before + unit * n for n in range(1, (local - before) // unit)]
        if fixed:
            due = [each for each in due if each not in shown]
            shown.update(due)
        if at > after and any(
            each.second in second and each.minute in minute and each.hour in hour and each.isoweekday() % 7 in weekday
            for each in due
        ):
            yield at
        at, before = at + unit, local


def _numbers(text: str, high: int) -> Iterator[int]:
    low = 1 if high in (31, 12) else 0
    for item in text.split(","):
        span, _, step = item.partition("/")
        first, _, last = (f"{low}-{high}" if span == "*" else span).partition("-")
        yield from range(int(first), int(last or first) + 1, int(step or 1))


# messages.next_ticks: a preview of when an expression ticks.


def next_ticks_ticks(queue: Queue, *arguments: object) -> list[datetime]:
    marks = ", ".join(["%s"] * len(arguments))
    return [row.at for row in queue.rows(f"SELECT t AS at FROM messages.next_ticks({marks}) AS t", arguments)]


def test_it_returns_five_ticks_from_the_servers_time(queue: Queue) -> None:
    queue.stop_clock("2026-11-16 09:00:00+00")

    found = next_ticks_ticks(queue, "0 9 * * *", "Europe/Berlin")

    assert found == [datetime(2026, 11, day, 8, tzinfo=UTC) for day in range(17, 22)]


def test_it_returns_any_number_of_ticks_from_a_given_time(queue: Queue) -> None:
    found = next_ticks_ticks(queue, "0 0 29 2 *", "UTC", 2, datetime(2026, 1, 1, tzinfo=UTC))

    assert found == [datetime(2028, 2, 29, tzinfo=UTC), datetime(2032, 2, 29, tzinfo=UTC)]


def test_a_day_that_never_occurs_has_none(queue: Queue) -> None:
    assert next_ticks_ticks(queue, "0 0 30 2 *") == []


@pytest.mark.parametrize("count", [0, 1001, None])
def test_the_count_has_bounds(queue: Queue, count: int | None) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="count of next_ticks is") as caught:
        next_ticks_ticks(queue, "@daily", "UTC", count)

    assert caught.value.diag.message_hint == "use 1 to 1000"


@pytest.mark.parametrize(
    ("zone", "fix"), [("+02:00", "or Etc/GMT-2"), ("CET", "like Europe/Berlin"), ("Mars/Base", "like UTC")]
)
def test_a_time_zone_that_a_schedule_may_not_have_is_refused(queue: Queue, zone: str, fix: str) -> None:
    with pytest.raises(errors.InvalidParameterValue, match=f'time_zone is "{re.escape(zone)}"') as caught:
        next_ticks_ticks(queue, "@daily", zone)

    assert fix in str(caught.value.diag.message_hint)


# messages.latest_ticks: the newest of many ticks, however long no one called.

MONDAY = datetime(2026, 11, 16, tzinfo=UTC)
NEWEST = "SELECT messages.latest_ticks(%s, 'Europe/Berlin', %s, %s, %s)"


def newest(queue: Queue, cron: str, first: datetime, until: datetime, count: int) -> list[datetime]:
    found: list[datetime] = queue.value(NEWEST, [cron, first, until, count])
    return found


def test_ticks_in_bursts_are_found_too(queue: Queue) -> None:
    # Every minute of one hour a year.
    found = newest(
        queue, "* 12 1 1 *", datetime(2020, 1, 1, 11, tzinfo=UTC), datetime(2026, 1, 1, 11, 0, 30, tzinfo=UTC), 3
    )

    assert found == [
        datetime(2025, 1, 1, 11, 58, tzinfo=UTC),
        datetime(2025, 1, 1, 11, 59, tzinfo=UTC),
        datetime(2026, 1, 1, 11, 0, tzinfo=UTC),
    ]


def test_the_newest_of_a_year_of_seconds_with_pauses_are_found(queue: Queue) -> None:
    found = newest(queue, "50-59 59 12 * * *", datetime(2025, 11, 16, 11, 59, 50, tzinfo=UTC), MONDAY, 12)

    last = [datetime(2026, 11, 15, 11, 59, second, tzinfo=UTC) for second in range(50, 60)]
    assert found == [each - timedelta(days=1) for each in last[-2:]] + last


def test_ten_years_of_seconds_are_fast(queue: Queue) -> None:
    until = MONDAY + timedelta(days=3650)
    began = queue.value("SELECT clock_timestamp()")

    found = newest(queue, "1 second", MONDAY, until, 2)

    assert found == [until - timedelta(seconds=1), until]
    assert queue.value("SELECT clock_timestamp() - %s < interval '30 s'", [began]) is True
