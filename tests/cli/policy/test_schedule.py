"""`pgrouse schedule`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.cli.shell import Shell
from tests.sql.queue import Queue

REPORT = ("schedule", "add", "report", "0 2 * * mon-fri", "report.nightly")


def test_a_schedule_is_added_and_shows_its_next_five_ticks(pgrouse: Shell, queue: Queue) -> None:
    ended = pgrouse(*REPORT, "--time-zone", "Europe/Berlin")

    assert (ended.code, ended.err) == (0, "")
    first, *lines = ended.out.splitlines()
    assert first == "schedule report  on"
    assert "  cron      0 2 * * mon-fri (Europe/Berlin)" in lines
    ticks = [line for line in lines if " 02:00:00 (in " in line]
    assert len(ticks) == 5
    assert not any(day in line for line in ticks for day in ("Sat", "Sun"))
    assert queue.scheduled("report").topic == "report.nightly"


def test_every_option_reaches_the_schedule(pgrouse: Shell, queue: Queue) -> None:
    options = (
        "--jitter 5m --missed all --missed-limit 7 --priority 2 --key k --channel c --header a=1 --while-paused skip "
        "--max-attempts 0 --timeout 30s --backoff linear --retention 90d"
    )

    pgrouse("schedule", "add", "s", "@daily", "t", '{"total": 1.10}', *options.split())

    found = queue.scheduled()
    assert (found.jitter, found.missed, found.missed_limit) == (timedelta(minutes=5), "all", 7)
    assert (found.priority, found.key, found.channel, found.headers) == (2, "k", "c", {"a": "1"})
    assert found.while_paused == "skip"
    assert (found.max_attempts, found.timeout, found.retention) == (0, timedelta(seconds=30), timedelta(days=90))
    assert found.backoff["kind"] == "linear"
    assert queue.value("SELECT payload::text FROM messages.schedule") == '{"total": 1.10}'


def test_what_is_given_of_a_schedule_is_changed_and_the_rest_stays(pgrouse: Shell, queue: Queue) -> None:
    pgrouse("schedule", "add", "s", "@daily", "t", '{"n": 1}', *["--key", "k", "--channel", "c", "--header", "a=1"])

    changed = pgrouse(
        "schedule", "set", "s", *["--cron", "@hourly", "--header", "b=2", "--missed-limit", "7", "--channel", ""]
    )

    assert (changed.code, changed.out.splitlines()[0]) == (0, "schedule s  on")
    found = queue.scheduled()
    assert (found.cron, found.headers, found.missed_limit, found.channel) == ("@hourly", {"b": "2"}, 7, None)
    assert (found.topic, found.payload, found.key) == ("t", {"n": 1}, "k")
    assert changed.err == ""
    queue.conn.execute("UPDATE messages.schedule SET declared_by = 'pgrouse.toml'")
    declared = pgrouse("schedule", "set", "s", "--cron", "@daily")
    assert declared.err == "s is declared by pgrouse.toml: the next `pgrouse migrate` sets it as it is there\n"
    assert pgrouse("schedule", "set", "s").code == 2
    assert pgrouse("schedule", "set", "unknown", "--cron", "@daily").code == 1


def test_what_its_messages_have_instead_of_their_topic_is_set_shown_and_taken_back(
    pgrouse: Shell, queue: Queue
) -> None:
    backoff = '{"kind": "constant", "base": "1m"}'
    pgrouse("schedule", "add", "s", "@daily", "t", "--timeout", "30s", "--max-attempts", "3")

    changed = pgrouse("schedule", "set", "s", "--backoff", backoff, "--retention", "90d", "--inherit", "timeout")
    shown = pgrouse("schedule", "show", "s", "--json").object
    both = pgrouse("schedule", "set", "s", "--timeout", "1s", "--inherit", "timeout")
    partial = pgrouse("schedule", "set", "s", "--backoff", '{"base": "1m"}')
    published = queue.message(int(pgrouse("schedule", "run-now", "s").out))

    assert "  attempts  3" in changed.out.splitlines()
    assert "  retention 90d" in changed.out.splitlines()
    assert (shown["timeout"], shown["backoff"]) == (None, {"kind": "constant", "base": "1m"})
    assert (both.code, partial.code) == (2, 1)
    assert "backoff.kind is missing" in partial.err
    assert (published.max_attempts, published.timeout, published.retention) == (3, None, timedelta(days=90))
    assert published.backoff == {"kind": "constant", "base": "1m"}


def test_an_expression_with_seconds_shows_its_ticks_to_the_second(pgrouse: Shell, queue: Queue) -> None:
    ended = pgrouse("schedule", "add", "s", "*/20 30 2 * * *", "t")

    assert (ended.code, queue.scheduled().cron) == (0, "*/20 30 2 * * *")
    ticks = [line.split(" (in ")[0][-8:] for line in ended.out.splitlines() if " (in " in line]
    assert ticks == ["02:30:00", "02:30:20", "02:30:40", "02:30:00", "02:30:20"]


def test_ticks_that_are_skipped_while_the_topic_is_paused_are_shown(pgrouse: Shell, queue: Queue) -> None:
    queue.stop_clock("2026-11-16 09:00:00+00")
    queue.schedule("s", "@hourly")
    queue.call("pause", "t")

    plain = pgrouse("schedule", "show", "s")
    changed = pgrouse("schedule", "set", "s", "--while-paused", "skip")
    queue.later("1 hour")
    queue.call("fire_schedules")
    shown = pgrouse("schedule", "show", "s")
    record = pgrouse("schedule", "show", "s", "--json").object

    assert "on pause" not in plain.out
    assert "  on pause  skips ticks while the topic is paused" in changed.out.splitlines()
    assert "  last      paused " in shown.out
    assert (record["while_paused"], record["runs"][0]["outcome"]) == ("skip", "paused")


def test_json_has_every_field(pgrouse: Shell, queue: Queue) -> None:
    added = pgrouse("schedule", "add", "s", "@yearly", "t", '{"n": 1}', "--json").object
    pgrouse("schedule", "run-now", "s")

    shown = pgrouse("schedule", "show", "s", "--json").object

    assert (added["name"], added["state"], added["payload"], len(added["next_ticks"])) == ("s", "on", {"n": 1}, 5)
    assert added["next_tick"] == added["next_ticks"][0]
    assert [(run["outcome"], run["message_id"]) for run in shown["runs"]] == [("published", queue.ids()[0])]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["a b", "@daily", "t"], '"a b" is no name of a schedule'),
        (["s", "0 25 * * *", "t"], 'cron of schedule s: hour is "25"'),
        (["s", "0 0 30 2 *", "t"], "a day that never comes"),
        (["s", "@daily", "a b"], 'topic of schedule s is "a b"'),
        (["s", "@daily", "t", "--time-zone", "berlin"], "use an IANA name, like Europe/Berlin"),
        (["s", "@daily", "t", "--jitter", "2d"], "use an interval from 0 to 1 day"),
        (["s", "@daily", "t", "--key", ""], 'key of schedule s is ""'),
        (["s", "@daily", "t", "{"], "payload is not JSON"),
    ],
)
def test_an_invalid_schedule_is_exit_code_1_and_one_line_with_the_fix(
    pgrouse: Shell, queue: Queue, arguments: list[str], expected: str
) -> None:
    ended = pgrouse("schedule", "add", *arguments)

    assert (ended.code, ended.out, ended.err.count("\n")) == (1, "", 1)
    assert ended.err.startswith("pgrouse: ")
    assert expected in ended.err
    assert queue.rows("SELECT name FROM messages.schedule") == []


def test_an_existing_name_is_refused_without_replace(pgrouse: Shell, queue: Queue) -> None:
    pgrouse(*REPORT)

    refused = pgrouse("schedule", "add", "report", "@daily", "other")
    before = queue.scheduled("report").topic
    replaced = pgrouse("schedule", "add", "report", "@daily", "other", "--replace")

    assert (refused.code, refused.out) == (1, "")
    assert refused.err == (
        "pgrouse: a schedule with this name exists already: choose another name, or change it with --replace\n"
    )
    assert (before, replaced.code, queue.scheduled("report").topic) == ("report.nightly", 0, "other")


def test_schedules_are_listed_by_name(pgrouse: Shell, queue: Queue) -> None:
    queue.schedule("b", "@hourly")
    queue.schedule("a", "@daily", time_zone="Europe/Berlin")
    queue.call("pause_schedule", "b")

    ended = pgrouse("schedule", "list")
    rows = pgrouse("schedule", "list", "--json").objects

    assert ended.out.splitlines()[0].split() == ["NAME", "STATE", "CRON", "TIME", "ZONE", "TOPIC", "NEXT", "LAST"]
    assert [line.split()[:4] for line in ended.out.splitlines()[1:]] == [
        ["a", "on", "@daily", "Europe/Berlin"],
        ["b", "paused", "@hourly", "UTC"],
    ]
    assert ended.out.splitlines()[2].split()[-2:] == ["-", "-"]
    assert [(row["name"], row["state"], len(row["next_ticks"])) for row in rows] == [("a", "on", 5), ("b", "paused", 0)]


def test_an_empty_list_explains_how_to_add_a_schedule(pgrouse: Shell) -> None:
    ended = pgrouse("schedule", "list")

    assert (ended.code, ended.out, ended.err) == (0, "", "no schedule: add one with `pgrouse schedule add`\n")


def test_a_failing_schedule_shows_its_error_and_the_list_continues(pgrouse: Shell, queue: Queue) -> None:
    queue.schedule("s", "1 second")
    with queue.conn.transaction():
        queue.conn.execute("SET LOCAL session_replication_role = replica")
        queue.conn.execute(
            "UPDATE messages.schedule SET time_zone = 'Mars/Base', cron = '@daily', next_tick = '2020-01-01'"
        )
    queue.call("fire_schedules")

    listed = pgrouse("schedule", "list")
    (row,) = pgrouse("schedule", "list", "--json").objects
    shown = pgrouse("schedule", "show", "s")

    assert 'time zone "Mars/Base" not recognized' in listed.out
    assert (row["state"], row["next_ticks"], row["failures"]) == ("failing", [], 1)
    assert '  error     time zone "Mars/Base" not recognized (tried again in ' in shown.out


def test_a_schedule_is_paused_with_a_reason_and_resumed(pgrouse: Shell, queue: Queue) -> None:
    queue.schedule("s", "@daily")

    paused = pgrouse("schedule", "pause", "s", "--reason", "no paper")
    again = pgrouse("schedule", "pause", "s", "--reason", "no ink")
    shown = pgrouse("schedule", "show", "s")
    resumed = pgrouse("schedule", "resume", "s")

    assert (paused.out, again.out, resumed.out) == ("s is paused\n", "s was paused already\n", "s goes on\n")
    assert shown.out.startswith("schedule s  paused\n")
    assert "by postgres: no ink" in shown.out
    assert queue.scheduled().paused_at is None


def test_a_manual_run_prints_the_id(pgrouse: Shell, queue: Queue) -> None:
    queue.schedule("s", "@daily", payload={"n": 1})

    ended = pgrouse("schedule", "run-now", "s")

    assert queue.message(int(ended.out)).payload == {"n": 1}
    shown = pgrouse("schedule", "show", "s").out
    assert f"published message {int(ended.out)} (ready) by" in shown


def test_a_manual_run_that_publishes_nothing_is_exit_code_1(pgrouse: Shell, queue: Queue) -> None:
    queue.schedule("s", "@daily", key="k")
    waits = pgrouse("schedule", "run-now", "s").out.strip()

    ended = pgrouse("schedule", "run-now", "s")

    assert (ended.code, ended.out) == (1, "")
    assert ended.err == f"pgrouse: message {waits} has the key of this schedule: nothing was published\n"
    assert pgrouse("schedule", "run-now", "s", "--json").object == {"name": "s", "id": int(waits), "outcome": "ignored"}


def test_a_removed_schedule_is_deleted_and_its_messages_remain(pgrouse: Shell, queue: Queue) -> None:
    queue.schedule("s", "@daily")
    pgrouse("schedule", "run-now", "s")

    ended = pgrouse("schedule", "remove", "s")

    assert (ended.code, ended.out) == (0, "s is removed\n")
    assert queue.rows("SELECT name FROM messages.schedule") == []
    assert len(queue.ids()) == 1


@pytest.mark.parametrize("verb", ["show", "pause", "resume", "run-now", "remove"])
def test_an_unknown_schedule_is_exit_code_1(pgrouse: Shell, verb: str) -> None:
    ended = pgrouse("schedule", verb, "nope")

    assert (ended.code, ended.out, ended.err.count("\n")) == (1, "", 1)
    assert "there is no schedule" in ended.err


def test_an_operator_may_run_every_schedule_command(pgrouse: Shell, acting_as: Any) -> None:
    acting_as("messages_operator")

    codes = [
        pgrouse(*arguments).code
        for arguments in (
            REPORT,
            ("schedule", "list"),
            ("schedule", "show", "report"),
            ("schedule", "pause", "report"),
            ("schedule", "resume", "report"),
            ("schedule", "run-now", "report"),
            (*REPORT, "--replace"),
            ("schedule", "remove", "report"),
        )
    ]

    assert codes == [0] * 8


def test_a_limit_of_missed_ticks_is_refused_where_it_has_no_effect(pgrouse: Shell, queue: Queue) -> None:
    ended = pgrouse("schedule", "add", "s", "@daily", "t", "--missed", "once", "--missed-limit", "5")

    assert (ended.code, ended.out) == (2, "")
    assert "--missed-limit needs --missed all, not --missed once" in ended.err
    assert queue.rows("SELECT name FROM messages.schedule") == []
