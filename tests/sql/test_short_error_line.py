"""last_line: the error itself, of a traceback."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue


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
