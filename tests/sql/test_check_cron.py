"""messages.check_cron: the problem of an invalid cron expression."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue

CHECK = "SELECT * FROM messages.check_cron(%s)"


@pytest.mark.parametrize("cron", ["*/5 * * * *", "0 0 29 2 *", "@daily", "30 seconds", "0 0 L * *"])
def test_a_valid_expression_has_no_problem(queue: Queue, cron: str) -> None:
    assert tuple(queue.row(CHECK, [cron])) == (None, None)


def test_an_unreadable_expression_is_reported_with_the_fix(queue: Queue) -> None:
    assert queue.row(CHECK, ["61 * * * *"]).problem == 'minute is "61"'


@pytest.mark.parametrize("cron", ["0 0 30 2 *", "0 0 31 4,6 */1"])
def test_a_day_that_never_comes_is_a_problem(queue: Queue, cron: str) -> None:
    found = queue.row(CHECK, [cron])

    assert found.problem == f'expression is "{cron}", a day that never comes'
    assert found.hint == "use a day that the month has, or L for the last one"


def test_null_is_a_problem_too(queue: Queue) -> None:
    assert queue.row(CHECK, [None]).problem is not None
