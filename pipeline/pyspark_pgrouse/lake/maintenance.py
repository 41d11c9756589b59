"""The maintenance that keeps a lake small and fast.

It merges small files, removes old days, and deletes files that no version needs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date, timedelta
from hashlib import sha256

from deltalake import WriterProperties

from pgrouse.errors import ConfigError
from pyspark_pgrouse.lake.data_file import is_cut
from pyspark_pgrouse.lake.lake import Lake, literal

WRITER = WriterProperties(compression="ZSTD")


def optimize(lake: Lake) -> int:
    """Merge the small files of each partition, including today's; return how many were merged.

    Readers see either the old or the new files.
    """
    lake.refresh()
    # delta-rs does not shorten the name of a directory.
    topics = {each["topic"] for each in lake.table.partitions() if "topic" in each}
    long = sorted(filter(is_cut, topics))
    with lake.directory.explained("written"):
        done = lake.table.optimize.compact(
            partition_filters=[("topic", "not in", long)] if long else None, writer_properties=WRITER
        )
    return int(done["numFilesRemoved"])


def delete_before(lake: Lake, day: date) -> int:
    """Delete all rows of the days before this one; return how many files were deleted."""
    lake.refresh()
    with lake.directory.explained("written"):
        return int(lake.table.delete(f"date < '{day.isoformat()}'")["num_removed_files"])


def vacuum(lake: Lake, older_than: timedelta) -> None:
    """Remove files that the newest version has not named for this long, and files that killed runs left.

    Older versions that need them can no longer be read.
    """
    lake.refresh()
    hours = math.ceil(older_than / timedelta(hours=1))
    with lake.directory.explained("written"):
        lake.table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)


def erase(lake: Lake, ids: Sequence[int], keys: Sequence[str]) -> int:
    """Delete the rows with these ids, and those with these keys; return how many.

    Their files are rewritten; `vacuum` removes the old ones.

    Raises:
        ConfigError: the lake has no keys.
    """
    lake.refresh()
    if keys and "key" not in lake.schema.names:
        raise ConfigError(f"the lake {lake.directory.url} was made without the column key: name the messages by --id")
    if "key" in lake.info.choice.mask:
        keys = [sha256(key.encode()).hexdigest() for key in keys]
    conditions = [f"id IN ({', '.join(map(str, ids))})"] if ids else []
    if keys:
        conditions.append(f"key IN ({', '.join(map(literal, keys))})")
    with lake.directory.explained("written"):
        return int(lake.table.delete(" OR ".join(conditions), writer_properties=WRITER)["num_deleted_rows"])
