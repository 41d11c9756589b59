"""The texts of errors: lines, fingerprints, cuts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import BaseModel

from pgrouse.handlers.outcome import describe
from pgrouse.values import error_line
from tests.sql.queue import Queue

# messages.error_fingerprint: errors that differ only in their particulars have the same fingerprint.

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
    ("can't open file 'a'", "can't open file 'b'"),
    ("no key 'it's gone'", "no key 'so is this'"),
    ("commit abcdefabc1 failed", "commit 1abcdefabc failed"),
    ("no customer cus_N8f3kLm2QxYz01", "no customer cus_b7Ty2pW9LmNo55"),
    ("503 for https://acme.example.com/v1/pay?id=7", "503 for https://globex.example.com/v1/refund"),
    ("cannot connect to postgres://u:p@db-1/shop: refused", "cannot connect to postgres://v:q@db-2/queue: refused"),
    ("cannot resolve acme.example.com:443", "cannot resolve api.globex.io:8443"),
    ("no space left for /var/lib/queue/7/a.json", "no space left for /tmp/b"),
    ("cannot read ~/acme/orders.csv", "cannot read /srv/globex/orders.csv"),
    ("mailbox ada@acme.org is full", "mailbox bob.b@mail.globex.net is full"),
    ("unknown tenant (tenant=acme, shard=b)", "unknown tenant (tenant=globex, shard=c)"),
    (
        "java.lang.IllegalStateException: 7\n\tat a.B.c(B.java:1)",
        "java.lang.IllegalStateException: 8\n\tat x.Y.z(Y.java:2)\n\t... 9 more",
    ),
]
DIFFERENT = [
    ("no order 7", "no customer 7"),
    ("Traceback:\nValueError: boom", "Traceback:\nKeyError: boom"),
    ("facade", "decade"),
    ("java.lang.A: x\n\t... 9 more", "java.lang.B: x\n\t... 9 more"),
    ("'a' is 'x'", "'a' was 'x'"),
    ("503 for https://a.example.com/x", "404 not found for https://a.example.com/x"),
    ("tenant=acme is unknown", "shard=acme is unknown"),
    ("json.decoder.JSONDecodeError: x", "json.encoder.JSONEncodeError: x"),
    ("and/or", "either/or"),
    ("cannot read /srv/a/b", "cannot write /srv/a/b"),
]


@pytest.mark.parametrize(("one", "another"), SAME)
def test_numbers_ids_quotes_case_and_traceback_are_ignored(queue: Queue, one: str, another: str) -> None:
    assert queue.call("error_fingerprint", one) == queue.call("error_fingerprint", another)


@pytest.mark.parametrize(("one", "another"), DIFFERENT)
def test_different_errors_have_different_fingerprints(queue: Queue, one: str, another: str) -> None:
    assert queue.call("error_fingerprint", one) != queue.call("error_fingerprint", another)


def test_a_fingerprint_is_16_hex_digits_and_no_error_has_none(queue: Queue) -> None:
    assert set(queue.call("error_fingerprint", "boom")) <= set("0123456789abcdef")
    assert len(queue.call("error_fingerprint", "boom")) == 16
    assert queue.call("error_fingerprint", None) is None


class Order(BaseModel):
    id: int


def chained(order: int) -> None:
    try:
        {}[order]
    except KeyError as error:
        raise RuntimeError(f"order {order} failed") from error


def with_note(row: int) -> None:
    error = ValueError(f"row {row} is bad")
    error.add_note(f"while reading page {row}\nof the book")
    raise error


def of_many_lines(row: int) -> None:
    raise ValueError(f"row {row}\n\n  details that differ: {'abc'[row % 3]}\nthe end")


def in_a_group(number: int) -> None:
    async def fail() -> None:
        raise ConnectionError(f"host {number} is away")

    async def all_at_once() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fail())

    asyncio.run(all_at_once())


def recursive(depth: int) -> None:
    if depth > 20:
        raise ValueError(f"{depth} is too deep")
    recursive(depth + 1)


RAISED: list[tuple[Callable[[int], object], str]] = [
    (
        lambda n: Order.model_validate({"id": f"x{n}"}),
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for Order",
    ),
    (chained, "RuntimeError: order 7 failed"),
    (with_note, "ValueError: row 7 is bad"),
    (of_many_lines, "ValueError: row 7"),
    (in_a_group, "ConnectionError: host 7 is away"),
    (recursive, "ValueError: 21 is too deep"),
    (lambda n: json.loads("[" * n), "json.decoder.JSONDecodeError: Expecting value: line 1 column 8 (char 7)"),
    (
        lambda n: Path(f"/nowhere/{n}").read_text(),
        "FileNotFoundError: [Errno 2] No such file or directory: '/nowhere/7'",
    ),
    (lambda n: compile("x = =\n" * n, "", "exec"), "SyntaxError: invalid syntax"),
    (lambda n: int("x" * 3 * n), "ValueError: invalid literal for int() with base 10: 'x'"),
]


def traceback_of(call: Callable[[int], object], number: int) -> str:
    """Return the error of this call as the archive would store it."""
    try:
        call(number)
    except Exception as error:  # noqa: BLE001 - any error that a handler may raise
        return describe(error)
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize(("call", "line"), RAISED)
def test_of_a_python_traceback_the_line_that_names_the_error_counts(
    queue: Queue, call: Callable[[int], object], line: str
) -> None:
    found = [queue.call("error_fingerprint", traceback_of(call, number)) for number in (7, 12)]

    assert found == [queue.call("error_fingerprint", line)] * 2


def test_expired_locks_of_any_worker_have_one_fingerprint(queue: Queue) -> None:
    for worker in ("mail-7d9f8b6c5-x2x4q", "mail-7d9f8b6c5-bbqtz"):
        queue.publish()
        queue.claim(worker=worker, lock_duration="0 s")
    queue.call("expire_locks")

    prints = {row.error_fingerprint for row in queue.rows("SELECT error_fingerprint FROM messages.message_archive")}

    assert len(prints) == 1
    assert prints != {None}


def test_details_that_the_database_adds_to_its_error_are_ignored(queue: Queue) -> None:
    def insert_twice(number: int) -> None:
        queue.conn.execute("CREATE TEMP TABLE IF NOT EXISTS one (id integer PRIMARY KEY)")
        for _ in range(2):
            queue.conn.execute("INSERT INTO one VALUES (%s)", [number])

    found = {queue.call("error_fingerprint", traceback_of(insert_twice, number)) for number in (7, 8)}

    line = 'psycopg.errors.UniqueViolation: duplicate key value violates unique constraint "one_pkey"'
    assert found == {queue.call("error_fingerprint", line)}


STRANGE = [
    "",
    "\n\n",
    "\n " * 4_000,
    "x" * 1_000_000,
    "'" * 10_000,
    "' " * 5_000,
    "ab\n" * 100_000,
    "0x" * 5_000,
    '  File "x\n' * 1_000,
    '  File "x", line 1\n' + "    y\n" * 1_500,
    " Exception Group Traceback \n" + "  | " * 2_000,
]


@pytest.mark.parametrize("error", STRANGE)
def test_errors_of_any_length_and_any_characters_have_a_fingerprint(queue: Queue, error: str) -> None:
    queue.conn.execute("SET statement_timeout = '30s'")

    assert len(queue.call("error_fingerprint", error)) == 16


# error_line: error_line: the line that names an error. pgrouse.values.error_line has the same rule, as has cut_error.

FRAME = '  File "/srv/shop/payments.py", line 12, in charge\n    client.post("/charges", json=order.as_json())\n'
TRACEBACK = "Traceback (most recent call last):\n" + FRAME
DEEP = "Traceback (most recent call last):\n" + FRAME * 30
ERRORS = {
    "one line": "boom",
    "a traceback": TRACEBACK + "ConnectionError: could not connect\n\n",
    "with detail": TRACEBACK + "UniqueViolation: duplicate key\nDETAIL:  Key (id)=(7) exists.\n",
    "deep": DEEP + "ConnectionError: could not connect to payments.internal",
    "deep with a long message": DEEP + "ValidationError: 99 errors\n" + "  field\n" * 900,
    "deep with a long line": DEEP + "ValueError: " + "x" * 3_000,
    "a long line": "ValueError: " + "x" * 5_000 + " the end",
    "Java": "java.lang.IllegalStateException: 7\n" + "\tat a.B.c(B.java:1)\n" * 200,
    "only frames": "Traceback (most recent call last):\n" + FRAME.rstrip(),
    "chained": TRACEBACK + "KeyError: 7\n\nThe above exception was the direct cause of:\n\n" + DEEP + "OSError: no",
    **{line: traceback_of(call, 7) for call, line in RAISED},
    **{f"strange {nth}": error for nth, error in enumerate(STRANGE)},
}


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
def test_python_and_sql_name_an_error_alike_and_cut_it_alike(queue: Queue, error: str) -> None:
    assert queue.call("error_line", error) == error_line.error_line(error)
    for characters in (100, 500, 1000):
        assert queue.call("cut_error", error, characters) == error_line.cut(error, characters)


def test_no_error_has_no_line(queue: Queue) -> None:
    assert (queue.call("error_line", None), queue.call("cut_error", None, 10)) == (None, None)


# cut_error: cut_error: the kept part of a long error still names it.


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("a traceback", "ConnectionError: could not connect"),
        ("with detail", "UniqueViolation: duplicate key"),
        ("deep", "ConnectionError: could not connect to payments.internal"),
        ("deep with a long message", "ValidationError: 99 errors"),
        ("Java", "java.lang.IllegalStateException: 7"),
        ("chained", "OSError: no"),
    ],
)
@pytest.mark.parametrize("characters", [300, 1000, 100_000])
def test_a_cut_error_keeps_its_name_and_its_end(queue: Queue, name: str, line: str, characters: int) -> None:
    cut = queue.call("cut_error", ERRORS[name], characters)

    assert len(cut) <= characters
    assert queue.call("error_line", cut) == line
    assert ERRORS[name].endswith(cut[-100:])


def test_the_archive_and_the_alert_keep_the_end_of_an_error_of_a_worker_in_sql(queue: Queue) -> None:
    queue.publish()
    queue.settle("fail", queue.claim(), [DEEP * 10 + "OSError: no"])

    (archived,) = queue.rows("SELECT error, error_fingerprint FROM messages.message_archive")
    sample = queue.value("SELECT sample_error FROM messages.alert")
    grouped = queue.value("SELECT sample_error FROM messages.dead_groups()")

    assert archived.error.endswith("OSError: no")
    assert archived.error_fingerprint == queue.call("error_fingerprint", "OSError: no")
    assert [queue.call("short_error_line", each) for each in (archived.error, sample, grouped)] == ["OSError: no"] * 3


# short_error_line: last_line: the error itself, of a traceback.


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (None, None),
        ("boom", "boom"),
        ('Traceback:\n  File "x"\nValueError: boom\n\n', "ValueError: boom"),
        ("x" * 500, "x" * 200),
    ],
)
def test_the_end_of_a_traceback_is_the_error(queue: Queue, error: str | None, line: str | None) -> None:
    assert queue.call("short_error_line", error) == line
