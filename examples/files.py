"""Read files, and store facts about each in the user's table."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from pathlib import Path

from psycopg.types.json import Jsonb
from pydantic import BaseModel

from pgrouse import Context, Reject

MOST_BYTES = 16 * 1024 * 1024
HEAD_BYTES = 64 * 1024
WORD = re.compile(rb"[A-Za-z_]{3,}")


class File(BaseModel):
    """The payload of topic `file.read`: an invalid one is rejected before the handler runs."""

    path: Path


def read(file: File, ctx: Context) -> None:
    """Store a text file's digest, size, lines and most frequent words.

    The message is completed in the same transaction.

    A sync handler runs in a thread, so it may block. If its worker dies in here, or its lock is lost, nothing is
    stored, and the message is retried: its result is stored once.
    """
    text = read_text(file.path)
    words = Counter(WORD.findall(text)).most_common(5)
    with ctx.transaction() as conn:
        conn.execute(
            """
            INSERT INTO demo.file AS f (path, message_id, sha256, bytes, lines, words, times_stored)
            VALUES (%s, %s, %s, %s, %s, %s, 1)
            ON CONFLICT (path) DO UPDATE
            SET sha256 = excluded.sha256, bytes = excluded.bytes, lines = excluded.lines, words = excluded.words,
                times_stored = f.times_stored + 1
            """,
            [
                str(file.path),
                ctx.id,
                hashlib.sha256(text).digest(),
                len(text),
                text.count(b"\n"),
                Jsonb([[word.decode(), count] for word, count in words]),
            ],
        )


def read_text(path: Path) -> bytes:
    """Return the content of a text file.

    Raises:
        Reject: it is not a text file, or too large. Another attempt would not change that.
        OSError: it cannot be read now, but perhaps later: the message is retried.
    """
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
        if b"\x00" in head:
            raise Reject("binary: has a NUL byte")
        text = head + file.read(MOST_BYTES)
    if len(text) > MOST_BYTES:
        raise Reject(f"larger than {MOST_BYTES:,} bytes")
    if b"\x00" in text:
        raise Reject("binary: has a NUL byte")
    return text
