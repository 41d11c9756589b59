"""The real job: a message for each file.

It is published in one transaction with its row in the table that the handler fills.
"""

from __future__ import annotations

from collections.abc import Iterator

from pgrouse.cli.demo.input_files import File, InputFiles
from pgrouse.cli.demo.progress_watch import ProgressWatch
from pgrouse.cli.demo.worker_kill import WorkerKill

TOPIC = "file.read"
FILES_A_TRANSACTION = 300


def publish(watch: ProgressWatch, directory: InputFiles) -> None:
    """Publish all files, and look at the queue after each transaction."""
    aside = f" ({directory.unnamed} left out: their names are no UTF-8)" if directory.unnamed else ""
    watch.screen.tell(
        "publish",
        f"{len(directory.files):,} files of {directory.root}{aside}: each is a message,"
        " in one transaction with its row in the table demo.file",
    )
    for batch in _batches(directory.files):
        with watch.conn.transaction(), watch.conn.cursor() as cursor:
            rows = [(file.path, watch.published.publish(watch.conn, TOPIC, {"path": file.path})) for file in batch]
            cursor.executemany("INSERT INTO demo.file (path, message_id) VALUES (%s, %s)", rows)
        watch.step()


def _batches(files: list[File]) -> Iterator[list[File]]:
    return (files[i : i + FILES_A_TRANSACTION] for i in range(0, len(files), FILES_A_TRANSACTION))


def tell(watch: ProgressWatch, worker_kill: WorkerKill) -> float:
    """Print how fast the files were read; return the files per second.

    Files that waited for the dead worker's locks are left out.
    """
    row = watch.conn.execute(
        """
        SELECT count(*), extract(epoch FROM max(a.archived_at) - min(a.locked_at))::float8
        FROM messages.message_archive AS a
        WHERE a.topic = %s AND NOT a.id = ANY (%s)
        """,
        [TOPIC, worker_kill.ids],
    ).fetchone()
    count, seconds = row or (0, 0.0)
    per_s = count / max(seconds, 0.001)
    died = worker_kill.held.get(TOPIC)
    aside = f"; the {died} that {worker_kill.name} held came later" if died else ""
    watch.screen.tell("read", f"{count:,} files in {seconds:.1f} s, {per_s:,.0f} a second{aside}")
    return per_s
