"""messages.fingerprint: errors that differ only in their particulars are one kind of error."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue

SAME = [
    ("no order 7", "no order 8123"),
    ("key 'a' is missing", "key 'b' is missing"),
    ('unknown field "name"', 'unknown field "nom"'),
    ("row 6ba7b810-9dad-11d1-80b4-00c04fd430c8 is locked", "row 00000000-0000-4000-8000-000000000001 is locked"),
    ("object at 0x7f3a", "object at 0xdeadbeef"),
    ("commit 4f1d9a2b3c failed", "commit 00aa11bb22cc failed"),
    ("Connection Refused", "connection refused"),
    ("boom", "boom\n"),
    ("Traceback:\n  line 1\nValueError: boom", "Traceback:\n  line 99, in <module>\nValueError: boom"),
]
DIFFERENT = [
    ("no order 7", "no customer 7"),
    ("Traceback:\nValueError: boom", "Traceback:\nKeyError: boom"),
    ("facade", "decade"),
]


@pytest.mark.parametrize(("one", "another"), SAME)
def test_numbers_ids_quotes_case_and_traceback_do_not_count(queue: Queue, one: str, another: str) -> None:
    assert queue.call("fingerprint", one) == queue.call("fingerprint", another)


@pytest.mark.parametrize(("one", "another"), DIFFERENT)
def test_what_happened_counts(queue: Queue, one: str, another: str) -> None:
    assert queue.call("fingerprint", one) != queue.call("fingerprint", another)


def test_it_is_16_hex_digits(queue: Queue) -> None:
    assert set(queue.call("fingerprint", "boom")) <= set("0123456789abcdef")
    assert len(queue.call("fingerprint", "boom")) == 16


def test_no_error_has_none(queue: Queue) -> None:
    assert queue.call("fingerprint", None) is None


@pytest.mark.parametrize("error", ["", "\n\n", "x" * 1_000_000, "'" * 10_000, "ab\n" * 100_000, "0x" * 5_000])
def test_no_error_is_too_long_or_too_strange(queue: Queue, error: str) -> None:
    queue.conn.execute("SET statement_timeout = '1s'")

    assert len(queue.call("fingerprint", error)) == 16
