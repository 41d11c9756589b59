"""cut_error: the kept part of a long error still names it."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue
from tests.sql.test_error_line import DEEP, ERRORS


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
