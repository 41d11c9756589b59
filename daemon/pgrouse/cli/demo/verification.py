"""Verifies the results of the demo, by SQL and by reading the files again. It uses none of the daemon's code."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import psycopg

from pgrouse.cli.demo.alerts import AlertFeed
from pgrouse.cli.demo.input_files import File, InputFiles
from pgrouse.cli.demo.progress_watch import PublishedMessages
from pgrouse.cli.demo.retries import MAILS
from pgrouse.cli.demo.worker_kill import WorkerKill

BLOCK_BYTES = 1024 * 1024
MOST_BYTES = 16 * 1024 * 1024  # what examples/files.py reads
EXAMPLES = 3  # how many examples of a problem its line names

Connection = psycopg.Connection[Any]


class FileFacts(NamedTuple):
    """The facts about a text file."""

    sha256: bytes
    size: int
    lines: int


@dataclass(frozen=True)
class Verification:
    """One thing that must be true.

    Attributes:
        name: a word for programs.
        ok: whether it is.
        text: what was counted, or what is wrong.
    """

    name: str
    ok: bool
    text: str


def check(
    conn: Connection,
    published: PublishedMessages,
    directory: InputFiles,
    worker_kill: WorkerKill,
    alerts: AlertFeed,
    look: Callable[[], object],
) -> Iterator[Verification]:
    """Verify everything. `look` is called from time to time while the files are read once more."""
    yield _one_place(conn, published)
    yield _once(conn, directory)
    yield _files(conn, directory, look)
    yield _outcomes(conn, worker_kill)
    yield _killed(conn, worker_kill)
    alerts.read_new()
    yield _alerts(conn, set(alerts.received))


def _one_place(conn: Connection, published: PublishedMessages) -> Verification:
    waiting = _number(conn, "SELECT count(*) FROM messages.message")
    archived = _number(conn, "SELECT count(*) FROM messages.message_archive")
    misplaced = _number(
        conn,
        """
        SELECT count(*) FROM unnest(%s::bigint[]) AS p (id)
        WHERE (SELECT count(*) FROM messages.message AS m WHERE m.id = p.id)
            + (SELECT count(*) FROM messages.message_archive AS a WHERE a.id = p.id) <> 1
        """,
        published.ids,
    )
    text = f"{len(published):,} published = {archived:,} archived + {waiting:,} waiting"
    aside = f", but {misplaced:,} are nowhere or in two places" if misplaced else ""
    return Verification("one_place", not misplaced and len(published) == archived + waiting, text + aside)


def _once(conn: Connection, directory: InputFiles) -> Verification:
    ended_twice = _number(conn, "SELECT count(*) - count(DISTINCT a.id) FROM messages.message_archive AS a")
    rows = _number(conn, "SELECT count(*) FROM demo.file")
    wrong = _number(
        conn,
        """
        SELECT count(*) FROM demo.file AS f JOIN messages.message_archive AS a ON a.id = f.message_id
        WHERE f.times_stored <> CASE WHEN a.result = 'success' THEN 1 ELSE 0 END
        """,
    )
    problem = (
        f"{ended_twice} messages ended twice, {wrong} files were not stored exactly once, "
        f"{rows:,} of {len(directory.files):,} rows are there"
    )
    ok = not ended_twice and not wrong and rows == len(directory.files)
    return Verification("once", ok, "no message ended twice, every file read is stored exactly once" if ok else problem)


def _files(conn: Connection, directory: InputFiles, look: Callable[[], object]) -> Verification:
    stored = _stored(conn)
    verdicts: dict[str, list[str]] = {"right": [], "rejected": [], "changed": [], "wrong": []}
    for file in directory.files:
        look()
        verdicts[_verdict(file, *stored.get(file.path, (None, None)))].append(file.path)
    right, rejected, changed, wrong = verdicts.values()
    aside = f" ({len(changed)} changed in the meantime and were not compared)" if changed else ""
    text = f"{len(right):,} digests right, {len(rejected):,} rejected with reason: each file read again{aside}"
    problem = f"{len(wrong):,} of {len(directory.files):,} files are not what is stored of them: "
    return Verification("files", not wrong, problem + ", ".join(wrong[:EXAMPLES]) if wrong else text)


def _stored(conn: Connection) -> dict[str, tuple[str | None, FileFacts | None]]:
    """Return the result of each file's message, and what is stored about the file."""
    rows = conn.execute(
        """
        SELECT f.path, a.result, f.sha256, f.bytes, f.lines
        FROM demo.file AS f LEFT JOIN messages.message_archive AS a ON a.id = f.message_id
        """
    )
    return {path: (result, None if facts[0] is None else FileFacts(*facts)) for path, result, *facts in rows}


def _verdict(file: File, result: str | None, facts: FileFacts | None) -> str:
    """Read the file once more and compare.

    A file that does not match, and was written to since it was found, proves nothing.
    """
    verdict = _compare(file, result, facts)
    return "changed" if verdict == "wrong" and not file.is_unchanged() else verdict


def _compare(file: File, result: str | None, facts: FileFacts | None) -> str:
    try:
        again, is_binary = _read(file.path)
    except OSError:
        return "right" if result == "failed" and facts is None else "wrong"
    unfit = is_binary or again.size > MOST_BYTES
    if result == "rejected":
        return "rejected" if unfit and facts is None else "wrong"
    return "right" if result == "success" and not unfit and facts == again else "wrong"


def _read(path: str) -> tuple[FileFacts, bool]:
    """Return the facts of a file, and whether it is binary."""
    digest, size, lines, is_binary = hashlib.sha256(), 0, 0, False
    with open(path, "rb") as file:  # noqa: PTH123 - paths are text here
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
            size += len(block)
            lines += block.count(b"\n")
            is_binary = is_binary or b"\x00" in block
    return FileFacts(digest.digest(), size, lines), is_binary


def _outcomes(conn: Connection, worker_kill: WorkerKill) -> Verification:
    """Check that orders and invoices succeed, and that mails fail at their third attempt.

    Mails that the killed worker held at that attempt are excepted.
    """
    rows = conn.execute(
        """
        SELECT a.topic, a.result, a.attempts FROM messages.message_archive AS a
        WHERE a.topic LIKE 'orders.%%' AND a.result <> 'success'
           OR a.topic = 'invoice.render' AND a.result <> 'success'
           OR a.topic = 'mail.send'
           AND (a.result, a.attempts) <> (CASE WHEN a.id = ANY (%s) THEN a.result ELSE 'failed' END, 3)
        """,
        [worker_kill.ids],
    ).fetchall()
    mails = _number(conn, "SELECT count(*) FROM messages.message_archive AS a WHERE a.topic = 'mail.send'")
    wrong = ", ".join(map(str, rows[:EXAMPLES]))
    problem = f"orders or mails ended as they should not: {wrong}; {mails} of {MAILS} mails"
    ok = not rows and mails == MAILS
    return Verification(
        "outcomes", ok, "orders and invoices succeeded, mails died at their third attempt" if ok else problem
    )


def _killed(conn: Connection, worker_kill: WorkerKill) -> Verification:
    """Check the killed worker's messages.

    Those at their last attempt are dead, the others came back and ended otherwise.
    """
    expired, back = conn.execute(
        """
        SELECT count(*) FILTER (WHERE a.result = 'lock_expired' AND a.attempts = t.max_attempts),
               count(*) FILTER (WHERE a.result <> 'lock_expired' AND t.max_attempts > 1 AND a.attempts > 1)
        FROM messages.message_archive AS a JOIN messages.topic AS t ON t.topic = a.topic
        WHERE a.id = ANY (%s)
        """,
        [worker_kill.ids],
    ).fetchone() or (0, 0)
    text = f"the killed worker's {len(worker_kill.ids)}: {back} were processed by others, {expired} are lock_expired"
    return Verification("killed", expired + back == len(worker_kill.ids), text)


def _alerts(conn: Connection, received: set[int]) -> Verification:
    unequal = _number(
        conn,
        """
        WITH dead AS (
          SELECT a.topic, a.result, count(*) AS n FROM messages.message_archive AS a
          WHERE a.result NOT IN ('success', 'cancelled') GROUP BY a.topic, a.result
        ), alert AS (
          SELECT a.topic, a.result, sum(a.count) AS n FROM messages.alert AS a
          WHERE a.kind = 'dead_message' GROUP BY a.topic, a.result
        )
        SELECT count(*) FROM dead FULL JOIN alert USING (topic, result) WHERE dead.n IS DISTINCT FROM alert.n
        """,
    )
    dead = _number(conn, "SELECT count(*) FROM messages.dead")
    ids = {row[0] for row in conn.execute("SELECT a.id FROM messages.alert AS a WHERE a.kind = 'dead_message'")}
    ok = not unequal and ids == received
    problem = (
        f": for {unequal} topics and results the alerts are not as many, {len(ids - received)} alerts were not received"
    )
    told = f", each in one of the {len(ids):,} alerts that were received" if ok else problem
    return Verification("alerts", ok, f"{dead:,} dead messages{told}")


def _number(conn: Connection, query: str, *values: Any) -> int:
    row = conn.execute(query.encode(), values or None).fetchone()
    return int(row[0]) if row else 0
