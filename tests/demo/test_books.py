"""The verification of the demo: each check passes for correct books, and fails for incorrect ones."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgrouse.cli.demo import verification
from pgrouse.cli.demo.alerts import AlertFeed
from pgrouse.cli.demo.environment import examples
from pgrouse.cli.demo.input_files import InputFiles, find
from pgrouse.cli.demo.progress_watch import PublishedMessages
from pgrouse.cli.demo.verification import Verification
from pgrouse.cli.demo.worker_kill import WorkerKill
from tests.server.postgres import Database

STORE = """
    UPDATE demo.file SET sha256 = sha256(pg_read_binary), bytes = length(pg_read_binary), lines = 2, times_stored = 1
    FROM (SELECT %s::bytea AS pg_read_binary) AS text WHERE path = %s
"""


@dataclass
class Ended:
    """The books of a finished demo, made by hand."""

    conn: psycopg.Connection[Any]
    published: PublishedMessages
    directory: InputFiles
    worker_kill: WorkerKill
    alerts: AlertFeed

    def checks(self) -> dict[str, Verification]:
        found = verification.check(
            self.conn, self.published, self.directory, self.worker_kill, self.alerts, lambda: None
        )
        return {check.name: check for check in found}

    def failing(self) -> set[str]:
        return {name for name, check in self.checks().items() if not check.ok}


@pytest.fixture
def ended(database: Database, tmp_path: Path, eventually: Callable[..., bool]) -> Ended:
    """The texts, mails, orders and messages of a killed worker, of which the books are.

    Two texts were read, a binary file was rejected, three mails failed, and there are an order and two messages of a
    killed worker.
    """
    conn = database.connect()
    conn.execute((examples() / "schema.sql").read_bytes())
    conn.execute("UPDATE messages.topic SET lock_expired_delay = '0'")
    alerts, published = AlertFeed(database.connect()), PublishedMessages()
    for name, content in {"one": b"a\nb\n", "two": b"c\nd\n", "three": b"\x00"}.items():
        (tmp_path / name).write_bytes(content)
    directory = InputFiles(
        tmp_path, [file for file in find(tmp_path, None).files if file.path.startswith(str(tmp_path))], 0
    )

    for file in directory.files:
        message_id = published.publish(conn, "file.read", {"path": file.path})
        conn.execute("INSERT INTO demo.file (path, message_id) VALUES (%s, %s)", [file.path, message_id])
        text = Path(file.path).read_bytes()
        if b"\x00" in text:
            settle(conn, message_id, "reject", "binary")
        else:
            conn.execute(STORE, [text, file.path])
            settle(conn, message_id, "complete")
    for _ in range(3):
        mail = published.publish(conn, "mail.send", {})
        conn.execute("UPDATE messages.message SET attempts = 2 WHERE id = %s", [mail])
        settle(conn, mail, "fail", "no server")
    settle(conn, published.publish(conn, "orders.created", {}), "complete")
    invoice, label = published.publish(conn, "invoice.render", {}), published.publish(conn, "label.print", {})
    expire(conn, invoice)
    settle(conn, invoice, "complete")
    expire(conn, label)
    worker_kill = WorkerKill("worker-2", {"invoice.render": 1, "label.print": 1}, [invoice, label], 2.0)
    (raised,) = conn.execute("SELECT count(*) FROM messages.alert WHERE kind = 'dead_message'").fetchone() or (0,)
    eventually(lambda: alerts.read_new() is not None and alerts.notifications == raised)
    return Ended(conn, published, directory, worker_kill, alerts)


def settle(conn: psycopg.Connection[Any], message_id: int, how: str, error: str | None = None) -> None:
    claim = locked(conn, message_id)
    if error is None:
        conn.execute("SELECT messages.complete(%s, %s)", [[message_id], [claim]])
    else:
        conn.execute(f"SELECT messages.{how}(%s, %s, %s)", [[message_id], [claim], [error]])


def expire(conn: psycopg.Connection[Any], message_id: int) -> None:
    locked(conn, message_id)
    conn.execute("UPDATE messages.message SET lock_expires_at = now() - interval '1 s' WHERE id = %s", [message_id])
    conn.execute("SELECT messages.expire_locks()")


def locked(conn: psycopg.Connection[Any], message_id: int) -> int:
    topic = conn.execute("SELECT topic FROM messages.message WHERE id = %s", [message_id]).fetchone()
    (row,) = conn.execute("SELECT id, claim_id FROM messages.claim('w', %s::text[], 1)", [list(topic or ())]).fetchall()
    assert row[0] == message_id
    return int(row[1])


def test_the_books_of_a_successful_demo_balance(ended: Ended) -> None:
    checks = ended.checks()

    assert [name for name, check in checks.items() if not check.ok] == []
    assert checks["one_place"].text == "9 published = 9 archived + 0 waiting"
    assert checks["files"].text.startswith("2 digests right, 1 rejected with reason")
    assert checks["killed"].text == "the killed worker's 2: 1 were processed by others, 1 are lock_expired"


@pytest.mark.parametrize(
    ("change", "failing"),
    [
        ("DELETE FROM messages.message_archive WHERE topic = 'orders.created'", "one_place"),
        ("INSERT INTO messages.message (topic, payload) VALUES ('orders.created', '{}')", "one_place"),
        (
            "INSERT INTO messages.message_archive SELECT * FROM messages.message_archive "
            "WHERE topic = 'orders.created'",
            "once",
        ),
        ("UPDATE demo.file SET times_stored = 2 WHERE path LIKE '%/one'", "once"),
        ("UPDATE demo.file SET times_stored = 1 WHERE path LIKE '%/three'", "once"),
        ("DELETE FROM demo.file WHERE path LIKE '%/one'", "once"),
        ("UPDATE demo.file SET sha256 = sha256('') WHERE path LIKE '%/one'", "files"),
        ("UPDATE demo.file SET bytes = bytes + 1 WHERE path LIKE '%/one'", "files"),
        ("UPDATE demo.file SET lines = lines + 1 WHERE path LIKE '%/one'", "files"),
        ("UPDATE messages.message_archive SET result = 'rejected' WHERE payload ->> 'path' LIKE '%/one'", "files"),
        ("UPDATE messages.message_archive SET result = 'success' WHERE payload ->> 'path' LIKE '%/three'", "files"),
        ("UPDATE messages.message_archive SET attempts = 2 WHERE topic = 'mail.send'", "outcomes"),
        ("UPDATE messages.message_archive SET result = 'failed' WHERE topic = 'orders.created'", "outcomes"),
        ("UPDATE messages.message_archive SET result = 'success' WHERE topic = 'label.print'", "killed"),
        ("UPDATE messages.message_archive SET attempts = 1 WHERE topic = 'invoice.render'", "killed"),
        ("DELETE FROM messages.alert WHERE topic = 'mail.send'", "alerts"),
        ("UPDATE messages.alert SET count = count + 1 WHERE topic = 'mail.send'", "alerts"),
    ],
)
def test_every_discrepancy_is_found(ended: Ended, change: str, failing: str) -> None:
    assert ended.conn.execute(change).rowcount > 0

    assert failing in ended.failing()


def test_a_mail_may_end_with_the_worker_that_was_killed_at_its_last_attempt(ended: Ended) -> None:
    mail = "FROM messages.message_archive AS a WHERE a.topic = 'mail.send'"
    ended.conn.execute(
        "UPDATE messages.message_archive SET result = 'lock_expired' WHERE id = (SELECT min(a.id) " + mail + ")"
    )
    assert {"outcomes"} <= ended.failing()

    ended.worker_kill.ids.extend(found for (found,) in ended.conn.execute("SELECT min(a.id) " + mail))

    assert ended.failing() <= {"alerts"}


def test_a_changed_file_is_not_an_error_of_the_handler(ended: Ended) -> None:
    Path(ended.directory.files[0].path).write_text("now it is another")

    check = ended.checks()["files"]

    assert check.ok
    assert "(1 changed in the meantime" in check.text


def test_a_file_that_looks_unchanged_but_differs_is_found(ended: Ended) -> None:
    path = Path(ended.directory.files[0].path)
    before = path.stat()
    path.write_bytes(b"x\ny\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    check = ended.checks()["files"]

    assert not check.ok
    assert str(path) in check.text
