"""messages.check_attempts: rows are staged only under numbers that their publisher got, and what they say of themselves is bounded."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.sql.queue import Queue
from tests.sql.staging import give_to_another_user, put, stage, staged


@pytest.mark.parametrize("row", [{}, {"reason": "bad", "given": "{}"}])
def test_rows_are_not_staged_under_a_number_that_was_never_given_out(queue: Queue, row: dict[str, Any]) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="not registered") as caught:
        put(queue, uuid4(), **row)

    assert "messages.begin_staging" in str(caught.value.diag.message_hint)
    assert staged(queue) == 0


def test_rows_are_not_staged_under_another_users_number(queue: Queue) -> None:
    attempt = stage(queue, {})
    give_to_another_user(queue)

    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="not registered"):
        put(queue, attempt)


def test_rows_of_several_own_numbers_are_staged_by_one_statement(queue: Queue) -> None:
    numbers = [stage(queue), stage(queue)]

    queue.conn.execute(
        "INSERT INTO messages.publish_stage (attempt, topic, payload) SELECT unnest(%s::uuid[]), 't', '1'", [numbers]
    )

    assert staged(queue) == 2


@pytest.mark.parametrize(
    "row",
    [
        {"reason": "x" * 1001, "given": "{}"},
        {"reason": "bad", "given": '"' + "x" * 16 * 1024 * 1024 + '"'},
        {"topic": "t", "payload": "1", "given": "{}"},
    ],
    ids=["a long reason", "much that was given", "given without a reason"],
)
def test_what_a_rejected_row_says_is_bounded(queue: Queue, row: dict[str, Any]) -> None:
    attempt = stage(queue)

    with pytest.raises(psycopg.errors.CheckViolation):
        put(queue, attempt, **row)
