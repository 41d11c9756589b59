"""Staging rows for the tests of bulk publishing."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from psycopg import sql

from tests.sql.queue import Queue, Row, _expression


def stage(queue: Queue, *rows: dict[str, Any], job: str = "j") -> UUID:
    """Stage these rows under one number; defaults: topic t and payload 1."""
    attempt: UUID = queue.call("begin_staging", job)
    for row in rows:
        put(queue, attempt, **row)
    return attempt


def put(queue: Queue, attempt: UUID, **row: Any) -> None:
    """Stage one more row."""
    given = {"attempt": attempt, **({} if "reason" in row or "topic" in row else {"topic": "t"}), **row}
    if not {"payload", "body", "reason"} & given.keys():
        given["payload"] = "1"
    statement = sql.SQL("INSERT INTO messages.publish_stage ({}) VALUES ({})").format(
        sql.SQL(", ").join(map(sql.Identifier, given)), sql.SQL(", ").join(map(_expression, given.values()))
    )
    queue.conn.execute(statement)


def publish(queue: Queue, *attempts: UUID, counts: list[int] | None = None, job: str = "j", **named: Any) -> Row:
    """Publish staged rows, and return the result of the job. counts: by default as many as there are."""
    there = [queue.value("SELECT count(*) FROM messages.publish_stage WHERE attempt = %s", [a]) for a in attempts]
    values = {"job": job, "attempts": list(attempts), "counts": there if counts is None else counts, **named}
    given = ", ".join(f"p_{name} => %({name})s" + {"counts": "::bigint[]"}.get(name, "") for name in values)
    return queue.row(f"SELECT * FROM messages.publish_staged({given})", values)


def publish_rows(queue: Queue, *rows: dict[str, Any], job: str = "j") -> Row:
    """Stage and publish rows."""
    return publish(queue, stage(queue, *rows, job=job), job=job)


def staged(queue: Queue) -> int:
    """Return how many rows are staged."""
    count: int = queue.value("SELECT count(*) FROM messages.publish_stage")
    return count


def rejected(queue: Queue, job: str = "j") -> list[Row]:
    """Return the rejected rows of a job."""
    return queue.rows("SELECT * FROM messages.job_rejected(%s)", [job])


def give_to_another_user(queue: Queue) -> None:
    """Make another user the owner of every job and every staged row."""
    queue.conn.execute("UPDATE messages.publish_job SET published_by = 'another_user'")
    queue.conn.execute("UPDATE messages.publish_attempt SET staged_by = 'another_user'")
