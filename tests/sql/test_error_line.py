"""error_line: the line that names an error. pgrouse.error_line has the same rule, as has cut_error."""

from __future__ import annotations

import pytest

from pgrouse import error_line
from tests.sql.queue import Queue
from tests.sql.test_error_fingerprint import RAISED, STRANGE, traceback_of

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
