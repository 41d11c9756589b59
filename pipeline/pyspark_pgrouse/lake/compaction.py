"""Small files of days that are over become larger ones. Readers see the files from before or those from after, never both.

The commit is a manifest like every other: it adds the new files and removes the old ones. These stay for a time, for readers that took
their snapshot before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import groupby

from pgrouse.errors import PgrouseError
from pyspark_pgrouse.lake.cursor import ExportConflict
from pyspark_pgrouse.lake.directory import Directory
from pyspark_pgrouse.lake.frame import batches_of
from pyspark_pgrouse.lake.lake import Lake, Snapshot
from pyspark_pgrouse.lake.manifest import CommitKind, DataFile, LakeColumn, Manifest
from pyspark_pgrouse.lake.writer import LakeWriter

TARGET_BYTES = 128 * 1024 * 1024
REPLACED = "_pgrouse/replaced"


@dataclass(frozen=True)
class Merge:
    """Files that become one.

    Attributes:
        batch: the number of the commit.
        index: which one of it.
        files: all of one date and topic.
    """

    batch: int
    index: int
    files: tuple[DataFile, ...]

    @property
    def rows(self) -> int:
        """How many rows they have together."""
        return sum(f.rows for f in self.files)


Run = Callable[[Callable[[Merge], list[DataFile]], Sequence[Merge]], list[list[DataFile]]]


def compact(lake: Lake, run: Run, before: date, target_bytes: int = TARGET_BYTES) -> int:
    """Merge the small files of the days before this one; return how many went into others.

    Only one process may write to a lake at a time; readers need not know.
    """
    snapshot = lake.snapshot()
    todo = merges(snapshot, before, target_bytes)
    if not todo:
        return 0
    directory, columns = lake.directory, snapshot.columns
    lake.begin(snapshot.number + 1)
    try:
        written = run(lambda what: merge(directory, columns, what), todo)
    except Exception:
        lake.clean()
        raise
    manifest = commit(lake, snapshot, todo, written)
    lake.end(manifest.number)
    return len(manifest.remove)


def merges(snapshot: Snapshot, before: date, target_bytes: int = TARGET_BYTES) -> list[Merge]:
    """Return what is worth merging: the files of each date before this and each topic that are smaller than half of the target, filled up to it."""
    small = [f for f in snapshot.files if f.date < before and f.bytes < target_bytes // 2]
    small.sort(key=lambda f: (f.date, f.topic, f.path))
    filled = [part for _, same in groupby(small, lambda f: (f.date, f.topic)) for part in _filled(same, target_bytes)]
    worth = [part for part in filled if len(part) > 1]
    return [Merge(snapshot.number + 1, index, part) for index, part in enumerate(worth)]


def merge(directory: Directory, columns: tuple[LakeColumn, ...], what: Merge) -> list[DataFile]:
    """Write the rows of all files of a merge into one file (more, if they are very many).

    Raises:
        PgrouseError: they are not as many as the manifests say.
    """
    writer = LakeWriter(directory, f"{what.batch:020}-{what.index:04}", columns)
    with writer:
        for file in what.files:
            for rows in batches_of(directory, file.path, columns):
                writer.write(rows)
    if (found := sum(f.rows for f in writer.files)) != what.rows:
        directory.remove([f.path for f in writer.files])
        raise PgrouseError(
            f"{directory.full(what.files[0].path)} and {len(what.files) - 1} more have {found} rows, not {what.rows}: restore them"
        )
    return writer.files


def commit(lake: Lake, snapshot: Snapshot, done: Sequence[Merge], written: Sequence[list[DataFile]]) -> Manifest:
    """Replace the merged files by the written ones, all at once.

    Raises:
        ExportConflict: another process committed meanwhile.
    """
    number = snapshot.number + 1
    add = tuple(file for files in written for file in files)
    remove = tuple(file.path for each in done for file in each.files)
    manifest = Manifest(number, CommitKind.COMPACTION, datetime.now(UTC), None, None, snapshot.columns, add, remove)
    # Before the commit, so that a crash in between forgets no file; `expire` looks at what was really committed.
    lake.directory.replace(f"{REPLACED}/{number:020}.json", b"{}")
    lake.directory.settle({file.path.rsplit("/", 1)[0] for file in add})
    if not lake.commit(manifest):
        raise ExportConflict(f"{lake.directory.url} was written to by another process meanwhile: run it again")
    lake.checkpoint(lake.snapshot())
    return manifest


def expire(lake: Lake, older_than: timedelta) -> int:
    """Delete files that were replaced so long ago, and those that attempts left that were given up; return how many."""
    snapshot = lake.snapshot()
    before = datetime.now(UTC) - older_than
    replaced = {number: _replaced(lake, snapshot, number) for number in _numbers(lake)}
    waiting = {path for m in replaced.values() if m and m.committed_at > before for path in m.remove}
    keep = {f.path for f in snapshot.files} | waiting
    found = lake.directory.entries("date=*/topic=*/*.parquet")
    # A file that is being written is younger; if the store reports no age, no file counts as abandoned.
    gone = {path for m in replaced.values() if m for path in m.remove}
    late = [
        e.path for e in found if e.path not in keep and (e.path in gone or (e.changed_at and e.changed_at < before))
    ]
    lake.directory.remove(late)
    over = [number for number, m in replaced.items() if m is None or m.committed_at <= before]
    lake.directory.remove(f"{REPLACED}/{number:020}.json" for number in over)
    return len(late)


def _filled(files: Iterator[DataFile], target_bytes: int) -> Iterator[tuple[DataFile, ...]]:
    part: list[DataFile] = []
    for file in files:
        if part and sum(f.bytes for f in part) + file.bytes > target_bytes:
            yield tuple(part)
            part = []
        part.append(file)
    if part:
        yield tuple(part)


def _numbers(lake: Lake) -> list[int]:
    return [int(name.removesuffix(".json")) for name in lake.directory.names(REPLACED) if name.endswith(".json")]


def _replaced(lake: Lake, snapshot: Snapshot, number: int) -> Manifest | None:
    """Return the compaction that was committed under this number; None if none was."""
    if number > snapshot.number:
        return None
    manifest = lake.manifest(number)
    return manifest if manifest.change is CommitKind.COMPACTION else None
