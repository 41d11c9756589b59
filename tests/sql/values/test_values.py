"""Small functions over values: time, text, JSON."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from tests.durations import DURATIONS
from tests.server.postgres import Database
from tests.sql.queue import Queue

# messages.now: the clock of the queue.

FAKE = datetime(2031, 2, 3, 4, 5, 6, tzinfo=UTC)


@pytest.fixture
def member(database: Database) -> Iterator[Queue]:
    """A connection of a user that is only a worker."""
    conn = database.connect()
    conn.execute("CREATE ROLE test_member IN ROLE messages_worker")
    conn.execute("SET SESSION AUTHORIZATION test_member")
    yield Queue(conn)
    conn.execute("RESET SESSION AUTHORIZATION")
    conn.execute("DROP ROLE test_member")


def test_it_is_the_servers_clock(queue: Queue) -> None:
    before, now, after = queue.row("SELECT clock_timestamp() AS a, messages.now() AS b, clock_timestamp() AS c")

    assert before <= now <= after


def test_it_advances_within_a_transaction(queue: Queue) -> None:
    with queue.conn.transaction():
        assert queue.call("now") < queue.call("now")


def test_the_owner_may_stop_it_for_a_test(queue: Queue) -> None:
    queue.conn.execute("SELECT set_config('messages.fake_now', %s, false)", [FAKE.isoformat()])

    assert queue.call("now") == queue.call("now") == FAKE


@pytest.mark.parametrize("unset", ["SET messages.fake_now = ''", "RESET messages.fake_now"])
def test_without_the_setting_it_advances_again(queue: Queue, unset: str) -> None:
    queue.later("-10 years")

    queue.conn.execute(unset.encode())

    assert queue.value("SELECT messages.now() > clock_timestamp() - interval '1 minute'") is True


def test_a_worker_cannot_change_it(member: Queue) -> None:
    member.conn.execute("SELECT set_config('messages.fake_now', %s, false)", [FAKE.isoformat()])

    assert abs(member.call("now") - datetime.now(UTC)) < timedelta(minutes=1)


def test_a_worker_cannot_expire_the_locks_of_others_with_its_own_clock(queue: Queue, member: Queue) -> None:
    published = queue.publish()
    queue.claim()
    member.conn.execute("SELECT set_config('messages.fake_now', %s, false)", [FAKE.isoformat()])

    member.rows("SELECT * FROM messages.tick('daemon')")

    assert queue.message(published).locked_by == "w"


def test_a_worker_cannot_set_an_invalid_clock(member: Queue) -> None:
    member.conn.execute("SET messages.fake_now = 'soon'")

    assert member.call("now") is not None


# messages.topic_matches and topic_regexps: how topics are chosen.


@pytest.mark.parametrize(
    ("wanted", "topic", "found"),
    [
        ("a", "a", True),
        ("a", "ab", False),
        ("a*", "ab", True),
        ("*", "anything", True),
        ("a_", "ab", False),
        ("a_*", "a_b", True),
        ("a%", "ab", False),
        ("a\\*", "ab", False),
    ],
)
@pytest.mark.parametrize("standard", ["on", "off"])
def test_only_a_star_at_the_end_stands_for_other_characters(
    queue: Queue, wanted: str, topic: str, found: bool, standard: str
) -> None:
    queue.conn.execute(f"SET standard_conforming_strings = {standard}".encode())

    assert queue.call("topic_matches", wanted, topic) is found


def test_no_name_of_a_topic_is_compiled_as_a_regular_expression(queue: Queue) -> None:
    """A session keeps only 32 of them."""
    assert queue.call("topic_regexps", ["a", "b.c", "b.*", "d*"]) == ["^(?!.*[.]dlq$)b[.](?:[^.*]*|[*])$", "^d"]


# format_interval: format_interval: durations as text for people.


@pytest.mark.parametrize(("seconds", "shown"), DURATIONS)
def test_one_unit_is_enough(queue: Queue, seconds: float, shown: str) -> None:
    assert queue.value("SELECT messages.format_interval(make_interval(secs => %s))", [seconds]) == shown


# messages.is_printable: which names have only visible characters. All of Unicode, and its callers:
# security/test_names.py.


@pytest.mark.every_server
@pytest.mark.parametrize(
    ("name", "is_printable"),
    [
        ("order-4711", True),
        ("日本語", True),
        ("", True),
        ("a\tb", False),
        ("a\u202eb", False),
        ("a\u200b", False),
        (None, None),
    ],
)
def test_invisible_characters_are_found(queue: Queue, name: str | None, is_printable: bool | None) -> None:
    assert queue.call("is_printable", name) is is_printable


# messages.replace_unprintable: names that are older than the check of names, made valid for a live message.


@pytest.mark.parametrize(
    ("name", "expected"),
    [("order-4711", "order-4711"), ("\u202eevil\u200b", "?evil?"), ("a\x07b", "a?b"), ("é ü", "é ü"), (None, None)],
)
def test_an_invisible_character_becomes_a_question_mark(queue: Queue, name: str | None, expected: str | None) -> None:
    assert queue.call("replace_unprintable", name) == expected
    assert expected is None or queue.call("is_printable", expected)


# jsonb_text_bytes, called by a constraint

JSONB_TEXT_BYTES_VAST = 1073741823


@pytest.mark.every_server
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("""'{"a": "ä"}'""", 11),
        ("'1e131071'", 131_072),
        ("to_jsonb(repeat('a', 100000))", 100_002),
        (r"to_jsonb(repeat(E'\x01', 100000))", 600_002),
        ("(SELECT jsonb_agg('1e131071'::jsonb) FROM generate_series(1, 300))", 300 * 131_074),
        ("(SELECT jsonb_agg('1e131071'::jsonb) FROM generate_series(1, 9000))", JSONB_TEXT_BYTES_VAST),
        ("NULL", None),
    ],
)
def test_it_counts_the_bytes_of_json_as_text(queue: Queue, value: str, expected: int | None) -> None:
    assert queue.value(f"SELECT messages.jsonb_text_bytes({value})") == expected
