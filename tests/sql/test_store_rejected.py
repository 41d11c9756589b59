"""messages.store_rejected: what was rejected of a job stays, what it staged goes."""

from __future__ import annotations

from tests.sql.queue import Queue
from tests.sql.staging import rejected, stage


def test_only_the_rejected_rows_of_these_attempts_are_kept(queue: Queue) -> None:
    bad = {"reason": "bad", "given": '{"n": 1}'}
    mine, other = stage(queue, {}, bad, bad), stage(queue, bad)
    queue.conn.execute("INSERT INTO messages.publish_job (job) VALUES ('j')")

    assert queue.call("store_rejected", "j", [mine]) == 2
    assert [(row.nth, row.given) for row in rejected(queue)] == [(1, {"n": 1}), (2, {"n": 1})]
    assert other != mine


def test_bytes_are_told_as_base64(queue: Queue) -> None:
    attempt = stage(queue, {"body": b"\x00\x01"})
    queue.conn.execute("INSERT INTO messages.publish_job (job) VALUES ('j')")
    queue.conn.execute("UPDATE messages.publish_stage SET reason = 'too large'")

    queue.call("store_rejected", "j", [attempt])

    assert rejected(queue)[0].given["body"] == "AAE="
