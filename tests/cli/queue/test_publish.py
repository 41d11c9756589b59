"""`pgrouse publish`. The rules for messages are tested by tests/client/test_publish.py."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.cli.shell import Shell
from tests.sql.queue import Queue


def test_publish_prints_the_id(pgrouse: Shell, queue: Queue) -> None:
    ended = pgrouse("publish", "orders.created", '{"id": 7}')

    assert (ended.code, ended.err) == (0, "")
    message = queue.message(int(ended.out))
    assert (message.topic, message.payload) == ("orders.created", {"id": 7})


def test_json_has_the_id_and_the_topic(pgrouse: Shell, queue: Queue) -> None:
    found = pgrouse("publish", "t", "--json").object

    assert found == {"id": queue.ids()[0], "topic": "t", "outcome": "inserted"}


def test_a_message_without_a_payload_has_null(pgrouse: Shell, queue: Queue) -> None:
    pgrouse("publish", "t")

    assert queue.value("SELECT payload::text FROM messages.message") == "null"


def test_every_digit_of_a_number_is_preserved(pgrouse: Shell, queue: Queue) -> None:
    pgrouse("publish", "t", '{"total": 1.10, "exact": 0.12345678901234567890}')

    assert (
        queue.value("SELECT payload::text FROM messages.message") == '{"exact": 0.12345678901234567890, "total": 1.10}'
    )


def test_a_dash_reads_the_payload_from_standard_input(pgrouse: Shell, queue: Queue) -> None:
    pgrouse("publish", "t", "-", stdin='\ufeff{"name": "größe"}\n')

    assert queue.value("SELECT payload FROM messages.message") == {"name": "größe"}


def test_a_file_of_bytes_is_published_as_the_body(pgrouse: Shell, queue: Queue, folder: Path) -> None:
    (folder / "x.bin").write_bytes(b"\x00\xff")

    pgrouse("publish", "t", "--body-file", "x.bin")
    pgrouse("publish", "t", "--body-file", "-", stdin=b"\xfe")

    assert [bytes(row.body) for row in queue.rows("SELECT body FROM messages.message ORDER BY id")] == [
        b"\x00\xff",
        b"\xfe",
    ]


def test_every_option_reaches_the_message(pgrouse: Shell, queue: Queue) -> None:
    options = "--key k --channel c --priority 0 --header a=1 --header b=x=y --max-attempts 3 --delay 1h --ttl 1d"

    pgrouse("publish", "t", "1", *options.split())

    (message,) = queue.rows(
        "SELECT *, available_at - created_at AS delay, expires_at - available_at AS life FROM messages.message"
    )
    assert (message.key, message.channel, message.priority, message.max_attempts) == ("k", "c", 0, 3)
    assert message.headers == {"a": "1", "b": "x=y"}
    assert abs(message.delay - timedelta(hours=1)) < timedelta(minutes=1)
    assert abs(message.life - timedelta(days=1)) < timedelta(minutes=1)


@pytest.mark.parametrize("lines", [False, True])
def test_a_message_has_its_own_timeout_backoff_and_retention(pgrouse: Shell, queue: Queue, lines: bool) -> None:
    content = ["--lines", "-"] if lines else ["-"]
    options = ["--timeout", "90s", "--retention", "90d", "--backoff"]

    pgrouse("publish", "t", *content, *options, '{"kind": "constant", "base": "7s"}', stdin=b"1")
    pgrouse("publish", "t", *content, *options, "none", stdin=b"2")

    rows = queue.rows("SELECT id, timeout, retention, backoff FROM messages.message ORDER BY id")
    assert [row.backoff for row in rows] == [{"kind": "constant", "base": "7s"}, {"kind": "none"}]
    assert {(row.timeout, row.retention) for row in rows} == {(timedelta(seconds=90), timedelta(days=90))}
    shown = pgrouse("message", "show", str(rows[1].id)).out
    for fact in ("1m30s, its own", '{"kind": "none"}, its own', "90d, its own"):
        assert fact in shown


def test_a_time_is_given_with_its_zone(pgrouse: Shell, queue: Queue) -> None:
    pgrouse("publish", "t", "--available-at", "2050-01-31T08:00:00+01:00")

    assert queue.value("SELECT available_at FROM messages.message") == datetime(2050, 1, 31, 7, tzinfo=UTC)


def test_lines_of_a_file_are_published_in_order(pgrouse: Shell, queue: Queue, folder: Path) -> None:
    (folder / "in.jsonl").write_text('{"n": 1}\r\n\n[2]\n"3"')

    ended = pgrouse("publish", "t", "--lines", "in.jsonl", "--channel", "c", "--delay", "1h")

    assert (ended.code, ended.out) == (0, "published 3 messages\n")
    rows = queue.rows("SELECT payload, channel FROM messages.message ORDER BY id")
    assert rows == [({"n": 1}, "c"), ([2], "c"), ("3", "c")]
    assert pgrouse("publish", "t", "--lines", "in.jsonl", "--json").object == {
        "published": 3,
        "dropped": 0,
        "ignored": 0,
        "topic": "t",
    }


def test_a_file_with_an_invalid_line_publishes_nothing(pgrouse: Shell, queue: Queue) -> None:
    ended = pgrouse("publish", "t", "--lines", "-", stdin='{"n": 1}\n{"n": \n')

    assert (ended.code, ended.out) == (1, "")
    assert ended.err == "pgrouse: message number 2: payload is not JSON: Expecting value at line 1, column 6\n"
    assert queue.ids() == []


REFUSED: list[tuple[list[str], str | bytes, str]] = [
    (["a b"], "", "topic 'a b' is no topic name: use 1 to 200 of A-Z a-z 0-9 . _ : - and a letter or digit first"),
    (["a\nb"], "", "topic 'a\\nb' is no topic name"),
    (["x'\"; --"], "", "is no topic name"),
    (["t" * 201], "", "is no topic name"),
    (["t", "{"], "", "payload is not JSON: Expecting property name enclosed in double quotes at line 1, column 2"),
    (["t", '{"a": 1, "a": 2}'], "", "the key 'a' occurs twice in one object"),
    (["t", '{"a": "\\u0000"}'], "", "payload['a'] contains a NUL character, which PostgreSQL cannot store"),
    (["t", '"\\ud800"'], "", "payload contains half of a surrogate pair"),
    (["t", "[1e400]"], "", "the number 1e400 is too large, readers make it infinity"),
    (["t", "NaN"], "", "NaN is not JSON"),
    (["t", "1" * 4301], "", "payload contains an integer of more than 4,300 digits"),
    (["t", "-"], "[" * 1000 + "]" * 1000, "payload is nested deeper than 200 levels"),
    (["t", "-"], b'"' + b"x" * 64 * 1024 * 1024 + b'"', "payload has 67,108,866 bytes, 16,777,216 is the limit"),
    (["t", "-"], b"\xff", "payload is not UTF-8 (byte 0): JSON is; other bytes are published by --body-file"),
    (["t", "--lines", "-"], b"1\n\xff\n", "line 2 is not UTF-8"),
    (["t", "--key", ""], "", "key '' cannot be used"),
    (["t", "--channel", "a\tb"], "", "channel 'a\\tb' cannot be used"),
    (["t", "--delay", "1h", "--available-at", "2050-01-01T00:00:00Z"], "", "delay and available_at were both given"),
    (["t", "--available-at", "9999-01-01T00:00:00Z"], "", "must be between 1970 and 9000"),
    (["t", "--max-attempts", str(2**31)], "", "max_attempts 2147483648 cannot be used"),
]


@pytest.mark.parametrize(("arguments", "stdin", "expected"), REFUSED, ids=[expected for *_, expected in REFUSED])
def test_an_invalid_message_is_exit_code_1_and_one_line(
    pgrouse: Shell, queue: Queue, arguments: list[str], stdin: str | bytes, expected: str
) -> None:
    ended = pgrouse("publish", *arguments, stdin=stdin)

    assert (ended.code, ended.out, ended.err.count("\n")) == (1, "", 1)
    assert ended.err.startswith("pgrouse: ")
    assert expected in ended.err
    assert queue.ids() == []


def test_a_waiting_message_with_the_same_key_is_reported(pgrouse: Shell) -> None:
    pgrouse("publish", "t", "--key", "k")

    ended = pgrouse("publish", "t", "--key", "k")

    assert (ended.code, ended.err) == (
        1,
        "pgrouse: a message of topic t with the key 'k' waits already: nothing was published\n",
    )


@pytest.mark.long
def test_a_payload_that_only_the_database_finds_too_large_is_reported(pgrouse: Shell) -> None:
    # Small numbers take more space in jsonb than in text.
    ended = pgrouse("publish", "t", "-", stdin="[" + "1," * 3_000_000 + "1]")

    assert ended.code == 1
    assert ended.err.startswith("pgrouse: the payload needs more than 16 MiB in the database: store it elsewhere")


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("replace", "replaced the waiting message with this key"),
        ("ignore", "not published: this message with the key waits already, or throttles it"),
        ("append", "appended to the waiting message with this key"),
    ],
)
def test_the_result_of_a_key_is_printed_with_the_id(pgrouse: Shell, queue: Queue, mode: str, expected: str) -> None:
    first = pgrouse("publish", "t", "1", "--key", "k")

    ended = pgrouse("publish", "t", "2", "--key", "k", "--on-conflict", mode)

    assert (ended.code, ended.out, ended.err) == (0, first.out, expected + "\n")


def test_debounce_moves_the_waiting_message_at_most_to_its_maximum(pgrouse: Shell, queue: Queue) -> None:
    options = ["--key", "k", "--debounce", "2h", "--max-delay", "2h30m", "--json"]
    first = pgrouse("publish", "t", "1", *options).object
    queue.conn.execute(
        "UPDATE messages.message SET available_at = available_at - interval '1 hour',"
        " debounce_limit = debounce_limit - interval '1 hour'"
    )

    second = pgrouse("publish", "t", "2", *options).object

    assert (first["outcome"], second) == ("inserted", {**first, "outcome": "replaced"})
    message = queue.message(first["id"])
    assert (message.payload, message.available_at) == (2, message.debounce_limit)


def test_throttle_publishes_nothing_after_a_start(pgrouse: Shell, queue: Queue) -> None:
    first = pgrouse("publish", "t", "1", "--key", "k", "--throttle", "1h")
    queue.claim_one()

    second = pgrouse("publish", "t", "2", "--key", "k", "--throttle", "1h")

    assert (second.code, second.out) == (0, first.out)
    assert second.err == "not published: this message with the key waits already, or throttles it\n"
    assert queue.ids() == [int(first.out)]


def test_lines_with_a_key_meet_the_message_that_has_it(pgrouse: Shell, queue: Queue) -> None:
    appended = pgrouse("publish", "t", "--lines", "-", "--key", "k", "--on-conflict", "append", stdin="1\n2\n")
    ignored = pgrouse("publish", "t", "--lines", "-", "--key", "k", "--on-conflict", "ignore", stdin="3\n4\n")

    assert (appended.code, appended.out) == (0, "published 2 messages\n")
    assert (ignored.out, ignored.err) == ("published 0 messages\n", "2 messages ignored: another message has the key\n")
    assert queue.value("SELECT payload FROM messages.message") == [1, 2]


def test_a_message_dropped_by_a_full_topic_is_reported_without_an_id(
    pgrouse: Shell, queue: Queue, folder: Path
) -> None:
    queue.policy("t", max_depth=1, on_full="drop")
    (folder / "in.jsonl").write_text("1\n2\n3\n")

    many = pgrouse("publish", "t", "--lines", "in.jsonl")
    one = pgrouse("publish", "t", "4")

    assert (many.code, many.out, many.err) == (0, "published 1 message\n", "2 messages dropped: the topic is full\n")
    assert (one.code, one.out, one.err) == (0, "", "dropped: the topic is full\n")
    assert pgrouse("publish", "t", "--json").object == {"id": None, "topic": "t", "outcome": "dropped"}


@pytest.mark.parametrize(
    ("policy", "code", "expected"),
    [
        ({"max_depth": 1}, 75, "topic t is full: max_depth is 1, and with 2 more it would hold 2: publish again"),
        ({"max_payload_bytes": 1}, 1, "a message of topic t has 3 bytes, max_payload_bytes is 1: store it elsewhere"),
        ({"payload_schema": {"type": "string"}}, 1, "does not fit the payload_schema of topic t (message number 1)"),
    ],
)
def test_a_refusal_by_a_policy_is_one_line_and_an_exit_code(
    pgrouse: Shell, queue: Queue, policy: dict[str, object], code: int, expected: str
) -> None:
    queue.policy("t", **policy)

    ended = pgrouse("publish", "t", "--lines", "-", stdin="100\n200\n")

    assert (ended.code, ended.out) == (code, "")
    assert expected in ended.err
    assert len(ended.err.splitlines()) == 1
    assert queue.ids() == []


def test_a_message_can_depend_on_others(pgrouse: Shell, queue: Queue) -> None:
    first, second = queue.publish("first"), queue.publish("second")

    ended = pgrouse("publish", "t", "--after", str(first), "--after", str(second), "--after-failed", "cancel")

    last = int(ended.out)
    assert [tuple(row) for row in queue.rows("SELECT id, after_failed FROM messages.workflow(%s)", [last])] == [
        (first, "cancel"),
        (second, "cancel"),
    ]


def test_a_missing_dependency_is_reported_in_one_line(pgrouse: Shell) -> None:
    ended = pgrouse("publish", "t", "--after", "4711")

    assert ended.code == 1
    assert "there is no message 4711 to come after" in ended.err
    assert ended.err.count("\n") == 1
