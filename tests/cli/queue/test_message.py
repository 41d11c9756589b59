"""`pgrouse message`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.cli.shell import Shell
from tests.sql.queue import Queue


@pytest.fixture
def states(queue: Queue) -> dict[str, int]:
    """One message in each state, by its name."""
    queue.policy("retrying", max_attempts=2)
    ids = {state: queue.publish(state) for state in ("running", "retrying", "success", "failed", "cancelled", "ready")}
    ids["delayed"] = queue.publish("delayed", wait="1 hour", channel="c", key="k")
    queue.claim("running", worker="w1")
    queue.settle("retry", queue.claim("retrying"), ["boom"], ["1 hour"])
    queue.settle("complete", queue.claim("success"))
    queue.settle("fail", queue.claim("failed"), ["boom"])
    queue.call("cancel", [ids["cancelled"]])
    return ids


# list


def test_live_messages_are_listed_with_their_state(pgrouse: Shell, states: dict[str, int]) -> None:
    rows = pgrouse("message", "list", "--json").objects

    assert [(row["id"], row["state"]) for row in rows] == [
        (states[state], state) for state in ("running", "retrying", "ready", "delayed")
    ]


@pytest.mark.parametrize("state", ["running", "retrying", "success", "failed", "cancelled", "ready", "delayed"])
def test_messages_of_one_state_can_be_listed(pgrouse: Shell, states: dict[str, int], state: str) -> None:
    rows = pgrouse("message", "list", "--state", state, "--json").objects

    assert [(row["id"], row["state"], row["archived_at"] is None) for row in rows] == [
        (states[state], state, state not in ("success", "failed", "cancelled"))
    ]


@pytest.mark.usefixtures("states")
def test_messages_of_one_batch_can_be_listed(pgrouse: Shell, queue: Queue) -> None:
    batch = queue.call("create_batch", "import")
    ended, waiting = queue.publish_many(2, "b", batch_id=batch)
    queue.settle("complete", queue.claim("b", limit=1))

    listed = [
        [row["id"] for row in pgrouse("message", "list", "--batch", str(batch), *state, "--json").objects]
        for state in ((), ("--state", "success"))
    ]

    assert listed == [[waiting], [ended]]


@pytest.mark.usefixtures("states")
def test_ended_messages_are_listed_back_to_a_given_time(pgrouse: Shell, queue: Queue) -> None:
    queue.conn.execute(
        "UPDATE messages.message_archive SET archived_at = now() - interval '2 days' WHERE topic = 'success'"
    )

    assert pgrouse("message", "list", "--state", "success").err == "no messages\n"
    assert len(pgrouse("message", "list", "--state", "success", "--since", "3d", "--json").objects) == 1


@pytest.mark.usefixtures("states")
def test_messages_are_listed_as_a_table(pgrouse: Shell) -> None:
    ended = pgrouse("message", "list")

    heading, first, *_, last = ended.out.splitlines()
    assert heading.split() == ["ID", "TOPIC", "STATE", "PRIO", "ATTEMPTS", "AVAILABLE", "WORKER", "CHANNEL", "KEY"]
    assert first.split()[1:3] == ["running", "running"]
    assert "w1" in first
    assert last.split()[1:] == ["delayed", "delayed", "5", "0", "in", "60m", "-", "c", "k"]


@pytest.mark.usefixtures("states")
def test_one_topic_can_be_listed(pgrouse: Shell) -> None:
    assert [row["topic"] for row in pgrouse("message", "list", "--topic", "ready", "--json").objects] == ["ready"]
    assert pgrouse("message", "list", "--topic", "none").err == "no messages of topic none\n"


def test_pages_follow_each_other_without_a_gap(pgrouse: Shell, queue: Queue) -> None:
    ids = queue.publish_many(5)

    first = pgrouse("message", "list", "--limit", "3")
    second = pgrouse("message", "list", "--limit", "3", "--after", ids[2], "--json")

    assert first.err == f"there may be more: --after {ids[2]}\n"
    assert [row["id"] for row in second.objects] == ids[3:]


@pytest.mark.parametrize("arguments", [[], ["--topic", "t"], ["--topic", "rare"], ["--state", "ready"]])
def test_a_page_of_a_big_queue_reads_few_rows(
    pgrouse: Shell, queue: Queue, eventually: Callable[..., int], arguments: list[str]
) -> None:
    queue.publish_many(20_000)
    queue.publish("rare")
    queue.conn.execute("VACUUM ANALYZE messages.message")
    queue.conn.execute("SET stats_fetch_consistency = none")
    queue.conn.execute("SELECT pg_stat_force_next_flush()")
    queue.conn.execute("SELECT pg_stat_reset()")

    pgrouse("message", "list", "--limit", "5", *arguments)

    def rows_read() -> int:
        return int(
            queue.value(
                "SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables WHERE relname = 'message'"
            )
        )

    # The command's own connection reports its statistics when it ends.
    assert eventually(rows_read) < 200


def test_an_analyst_may_list(pgrouse: Shell, acting_as: Callable[[str], None], states: dict[str, int]) -> None:
    acting_as("messages_analyst")

    assert len(pgrouse("message", "list", "--json").objects) == 4
    assert [row["id"] for row in pgrouse("message", "list", "--state", "failed", "--json").objects] == [
        states["failed"]
    ]


# show


def test_json_shows_every_field_of_a_live_message(pgrouse: Shell, queue: Queue) -> None:
    message_id = queue.publish(payload={"n": 1}, headers={"h": "x"}, key="k", priority=1)

    shown = pgrouse("message", "show", message_id, "--json").object

    assert (shown["id"], shown["state"], shown["payload"], shown["headers"]) == (
        message_id,
        "ready",
        {"n": 1},
        {"h": "x"},
    )
    assert (shown["key"], shown["priority"], shown["attempts"], shown["archived_at"]) == ("k", 1, 0, None)
    assert shown["runs"] == 0


def test_an_ended_message_is_shown_from_the_archive(pgrouse: Shell, queue: Queue) -> None:
    queue.policy(max_attempts=2, backoff={"kind": "none"})
    message_id = queue.publish(payload={"n": 1})
    queue.settle("retry", queue.claim(worker="w1"), ["first"])
    queue.settle("retry", queue.claim(worker="w2"), ["Traceback\nValueError: second"])

    shown = pgrouse("message", "show", message_id, "--json").object
    text = pgrouse("message", "show", message_id).out

    assert (shown["state"], shown["error"], shown["worker"]) == ("failed", "Traceback\nValueError: second", "w2")
    assert [entry["error"] for entry in shown["history"]] == ["first"]
    assert "attempt 1    failed after" in text
    assert "by w1: first" in text
    assert "by w2: ValueError: second" in text
    assert '"n": 1' in text


def test_a_redriven_message_shows_its_predecessor_and_its_successor(pgrouse: Shell, states: dict[str, int]) -> None:
    new = pgrouse("redrive", states["failed"], "--json").object["message_id"]

    assert pgrouse("message", "show", new, "--json").object["redriven_from"] == states["failed"]
    assert pgrouse("message", "show", states["failed"], "--json").object["redriven_as"] == new


def test_control_characters_of_a_payload_do_not_reach_the_terminal(pgrouse: Shell, queue: Queue) -> None:
    # A key from before such characters were refused.
    queue.conn.execute("ALTER DOMAIN messages.key_name DROP CONSTRAINT message_key_is_short_and_printable")
    message_id = queue.publish(payload={"x": "\x1b]0;owned\x07"}, key="k\u202e")

    text = pgrouse("message", "show", message_id).out

    assert "\\u001b]0;owned\\u0007" in text
    assert "\u202e" not in text
    assert "\x1b" not in text


@pytest.mark.parametrize("payload", ["1e400", "1" * 5000, "[" * 1500 + "]" * 1500])
def test_json_that_python_cannot_hold_is_shown(pgrouse: Shell, queue: Queue, payload: str) -> None:
    message_id = queue.value(
        "INSERT INTO messages.message (topic, payload) VALUES ('t', %s::jsonb) RETURNING id", [payload]
    )

    ended = pgrouse("message", "show", message_id)

    assert ended.code == 0
    assert payload[:4].replace("1e40", "1000") in ended.out
    assert '"payload": ' in pgrouse("message", "show", message_id, "--json").out


def test_a_long_payload_is_cut_in_the_table_and_whole_in_json(pgrouse: Shell, queue: Queue) -> None:
    message_id = queue.publish(payload={"x": "y" * 100_000})

    assert len(pgrouse("message", "show", message_id).out) < 25_000
    assert len(pgrouse("message", "show", message_id, "--json").object["payload"]["x"]) == 100_000


def test_bytes_are_shown_as_bytes(pgrouse: Shell, queue: Queue) -> None:
    message_id = queue.publish(body=b"\x00ab\x1b")

    assert "4 bytes: \\x00ab\\x1b" in pgrouse("message", "show", message_id).out
    assert pgrouse("message", "show", message_id, "--json").object["body"] == {"base64": "AGFiGw=="}


def test_a_missing_message_is_exit_code_1(pgrouse: Shell) -> None:
    ended = pgrouse("message", "show", 42)

    assert (ended.code, ended.out) == (1, "")
    assert ended.err == "pgrouse: there is no message 42: it was never published, or was deleted from the archive\n"


def test_a_user_without_access_to_payloads_sees_the_other_columns(
    pgrouse: Shell, acting_as: Callable[[str], None], states: dict[str, int]
) -> None:
    acting_as("messages_analyst")

    for state in ("ready", "failed"):
        shown = pgrouse("message", "show", states[state], "--no-payload", "--json").object
        assert shown["state"] == state
        assert "payload" not in shown


# cancel


def test_cancelled_messages_are_archived_with_the_reason(pgrouse: Shell, queue: Queue) -> None:
    ids = queue.publish_many(2)

    ended = pgrouse("message", "cancel", *ids, "--reason", "not wanted")

    assert (ended.code, ended.out) == (0, f"cancelled {ids[0]}\ncancelled {ids[1]}\n")
    assert [queue.archived(each).error for each in ids] == ["cancelled: not wanted"] * 2


def test_a_message_that_is_not_live_cannot_be_cancelled_and_is_named(pgrouse: Shell, states: dict[str, int]) -> None:
    wanted: list[Any] = [states["ready"], states["success"], 999]

    ended = pgrouse("message", "cancel", *wanted)

    assert (ended.code, ended.out) == (1, f"cancelled {states['ready']}\n")
    assert [line.split(":")[1].strip() for line in ended.err.splitlines()] == [
        f"message {states['success']} was not cancelled",
        "message 999 was not cancelled",
    ]
    assert pgrouse("message", "cancel", states["running"], 999, "--json").object == {
        "cancelled": [states["running"]],
        "not_live": [999],
    }


# skip


def test_a_message_that_blocks_its_channel_is_skipped_and_the_next_one_runs(pgrouse: Shell, queue: Queue) -> None:
    queue.policy(ordered=True, max_attempts=2)
    first, second = (queue.publish(channel="c") for _ in range(2))
    queue.settle("retry", queue.claim(), ["boom"], ["1 hour"])
    assert queue.claim() == []

    ended = pgrouse("message", "skip", first, "--reason", "cannot be read")

    assert (ended.code, ended.out) == (0, f"skipped {first}\n")
    assert (queue.archived(first).result, queue.archived(first).error) == ("failed", "skipped: cannot be read")
    assert [each.id for each in queue.claim()] == [second]


def test_a_message_that_does_not_wait_cannot_be_skipped_and_is_named(pgrouse: Shell, states: dict[str, int]) -> None:
    wanted: list[Any] = [states["ready"], states["running"], states["success"], 999]

    ended = pgrouse("message", "skip", *wanted)

    assert (ended.code, ended.out) == (1, f"skipped {states['ready']}\n")
    assert ended.err.splitlines() == [
        f"pgrouse: message {each} was not skipped: it runs, has ended, or was never published (`pgrouse "
        f"explain {each}`)"
        for each in wanted[1:]
    ]
    assert pgrouse("message", "skip", states["delayed"], states["running"], "--json").object == {
        "skipped": [states["delayed"]],
        "not_waiting": [states["running"]],
    }


def test_a_waiting_message_is_edited(pgrouse: Shell, queue: Queue) -> None:
    waiting = queue.publish(payload={"n": 1}, headers={"h": 1})

    ended = pgrouse("message", "edit", waiting, "--payload", '{"n": 2.50}')

    assert (ended.code, ended.out) == (0, f"edited {waiting}\n")
    text = "SELECT payload::text, headers::text FROM messages.message WHERE id = %s"
    assert tuple(queue.row(text, [waiting])) == ('{"n": 2.50}', '{"h": 1}')


@pytest.mark.parametrize(
    ("state", "arguments", "problem"),
    [
        ("running", [], "it runs: its handler has the old contents already"),
        ("success", [], "it has ended, or was never published"),
        ("ready", ["--seen", "0" * 32], "its contents have changed since they were read"),
    ],
)
def test_a_message_that_cannot_be_edited_is_reported_with_the_reason(
    pgrouse: Shell, states: dict[str, int], state: str, arguments: list[str], problem: str
) -> None:
    ended = pgrouse("message", "edit", states[state], "--payload", "{}", *arguments)

    assert (ended.code, ended.out) == (1, "")
    assert f"message {states[state]} was not edited: {problem}" in ended.err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [([], "give --payload or --headers"), (["--payload", "{"], "payload is not JSON"), (["--headers", "1"], "headers")],
)
def test_an_edit_with_an_invalid_payload_is_refused(
    pgrouse: Shell, states: dict[str, int], arguments: list[str], complaint: str
) -> None:
    ended = pgrouse("message", "edit", states["ready"], *arguments)

    assert ended.code != 0
    assert complaint in ended.err


# a running message


@pytest.mark.parametrize(
    ("progress", "line"),
    [
        ({"done": 30, "total": 100, "unit": "rows"}, "progress     30 of 100 rows (30 %)"),
        ({"done": 1500}, "progress     1,500"),
        ({"done": 0.5, "total": 0}, "progress     0.5 of 0"),
        ({"page": 7}, 'progress     {"page": 7}'),
        ({"done": True}, 'progress     {"done": true}'),
        ({"done": 10**400, "total": 1}, f"progress     {10**400:,} of 1"),
    ],
)
def test_a_message_shows_its_progress(pgrouse: Shell, queue: Queue, progress: dict[str, object], line: str) -> None:
    published = queue.publish()
    queue.settle("set_progress", queue.claim(), [Jsonb(progress)])

    assert f"  {line}\n" in pgrouse("message", "show", published).out


def test_a_message_shows_its_attempts_its_runs_and_the_attempt_that_never_began(pgrouse: Shell, queue: Queue) -> None:
    queue.policy(max_attempts=3, backoff={"kind": "none"})
    published = queue.publish()
    queue.claim(start=0, lock_duration="0")
    queue.call("expire_locks")
    queue.settle("complete", queue.claim())

    shown = pgrouse("message", "show", published)

    assert "  attempts     2" in shown.out
    assert "  runs         1\n" in shown.out
    first, second = [line for line in shown.out.splitlines() if "attempt 1" in line or "attempt 2" in line]
    assert ", never begun, by w" in first
    assert ", never begun, by w" not in second


# dependencies


def test_dependencies_and_dependents_of_a_message_are_shown(pgrouse: Shell, queue: Queue) -> None:
    first = queue.publish("first")
    middle = queue.send(after=[first]).id
    last = queue.send(topic="last", after=[middle], after_failed="run").id

    shown = pgrouse("message", "show", str(middle)).out
    (record,) = pgrouse("message", "show", str(middle), "--json").objects

    assert f"comes after  {first} first (ready; if it ends badly: hold)" in shown
    assert f"followed by  {last} last (blocked; if it ends badly: run)" in shown
    assert "9000" not in shown
    assert [(each["id"], each["state"]) for each in record["before"]] == [(first, "ready")]
    assert [(each["id"], each["state"]) for each in record["after"]] == [(last, "blocked")]


def test_a_message_is_released_from_its_dependencies_and_one_without_any_is_reported(
    pgrouse: Shell, queue: Queue
) -> None:
    last = queue.send(after=[queue.publish("first")]).id

    done = pgrouse("message", "unblock", str(last), "--json").objects
    again = pgrouse("message", "unblock", str(last))

    assert done == [{"released": [last], "not_waiting": []}]
    assert again.code == 1
    assert f"see `pgrouse explain {last}`" in again.err
    assert [c.id for c in queue.claim()] == [last]


def test_waiting_messages_are_deleted_and_others_are_named(
    pgrouse: Shell, queue: Queue, states: dict[str, int]
) -> None:
    wanted: list[Any] = [states["ready"], states["running"], states["success"]]

    ended = pgrouse("message", "delete", *wanted)

    assert (ended.code, ended.out) == (1, f"deleted {states['ready']}\n")
    assert [line.split(" was ")[0] for line in ended.err.splitlines()] == [
        f"pgrouse: message {each}" for each in wanted[1:]
    ]
    assert queue.message(states["ready"]) is None


# signal


def wait(queue: Queue, **columns: Any) -> int:
    published = queue.publish("waits", **columns)
    assert queue.settle("wait_for_event", queue.claim("waits"), ["ok"], [1], ["7 days"]) == []
    return published


def test_a_signal_continues_a_message_that_waits(pgrouse: Shell, queue: Queue) -> None:
    published = wait(queue)

    ran = pgrouse("message", "signal", published, "ok", "--payload", '{"by": "anna"}')

    assert (ran.code, ran.out) == (0, f"signalled ok to {published}\n")
    (claimed,) = queue.claim("waits")
    (event,) = queue.rows("SELECT * FROM messages.load_events(%s, %s)", [claimed.id, claimed.claim_id])
    assert event.payload == '{"by": "anna"}'


def test_a_key_finds_the_message_that_waits(pgrouse: Shell, queue: Queue) -> None:
    published = wait(queue, key="k")

    assert pgrouse("message", "signal-key", "waits", "k", "ok", "--json").object == {"id": published, "event": "ok"}
    assert [row.id for row in queue.claim("waits")] == [published]


def test_a_signal_for_nothing_is_a_problem(pgrouse: Shell, queue: Queue) -> None:
    published = wait(queue)
    queue.call("cancel", [published])

    by_id, by_key = pgrouse("message", "signal", published, "ok"), pgrouse("message", "signal-key", "waits", "k", "ok")

    assert (by_id.code, by_key.code) == (1, 1)
    assert f"message {published} was not signalled: it has ended" in by_id.err
    assert "no message of topic waits with the key k waits or runs" in by_key.err


def test_a_message_that_waits_shows_for_what_and_until_when(pgrouse: Shell, queue: Queue) -> None:
    published = wait(queue)

    shown = pgrouse("message", "show", published)

    assert "waits for    event ok, until " in shown.out
    assert pgrouse("message", "show", published, "--json").object["waits_for"]["event"] == "ok"
    assert "its handler waits for the event" in pgrouse("explain", published).out


def test_a_signed_url_is_printed_where_the_web_server_has_an_address(
    pgrouse: Shell, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = wait(queue)
    without = pgrouse("message", "signal-url", published, "ok")
    monkeypatch.setenv("PGROUSE_WEB__URL", "https://queue.example.com")

    made = pgrouse("message", "signal-url", published, "ok", "--expires", "1h")

    assert without.code == 78
    assert "web.url is not set" in without.err
    assert made.out.startswith(f"https://queue.example.com/signal/{published}/ok?until=")


def test_a_message_shows_the_last_log_lines_of_its_attempts(pgrouse: Shell, queue: Queue) -> None:
    published = queue.publish()
    claimed = queue.claim_one()
    lines = "\n".join(f"INFO shop: line {number}" for number in range(60))
    queue.call("save_logs", [claimed.id], [claimed.claim_id], [lines + "\x1b[31m"], [1234])

    shown = pgrouse("message", "show", str(published)).out
    (logged,) = pgrouse("message", "show", str(published), "--json").objects[0]["logs"]

    assert "log of attempt 1, " in shown
    assert "… before: 10 more, see --json; 1,234 not kept\n    INFO shop: line 10\n" in shown
    assert r"line 59\x1b[31m" in shown
    assert (logged["left_out"], logged["lines"].count("\n")) == (1234, 59)
