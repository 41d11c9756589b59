"""A Delta table over the files of a lake: its log follows the manifests, each in one commit that bears the manifest's number.

The table is in the directory of the lake. A commit that is there is not made again, so a follower may be killed at any point.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime

from pgrouse.errors import ConfigError
from pyspark_pgrouse.lake.columns import arrow_schema
from pyspark_pgrouse.lake.directory import LakeUnwritable
from pyspark_pgrouse.lake.lake import Lake
from pyspark_pgrouse.lake.manifest import CommitKind, DataFile, LakeColumn, Manifest

try:
    from deltalake import CommitProperties, DeltaTable, Schema, Transaction
    from deltalake.exceptions import DeltaError
    from deltalake.transaction import AddAction, RemoveAction
except ModuleNotFoundError as error:
    if error.name != "deltalake":
        raise
    raise ConfigError(
        "--delta needs the package deltalake, which is not installed: pip install 'pgrouse[delta]'"
    ) from error

# By this name the table counts the manifests that it has.
APPLICATION = "pgrouse-export"
PARTITIONED_BY = ["date", "topic"]


def follow(lake: Lake) -> int:
    """Bring the table up to the last manifest; return how many commits that took.

    Raises:
        LakeUnwritable: the table cannot be written.
    """
    last = lake.snapshot().number
    try:
        done = _followed(lake)
        for number in range(done + 1, last + 1):
            _append(lake, lake.manifest(number))
    except (DeltaError, OSError) as error:
        raise LakeUnwritable(
            f"the Delta table in {lake.directory.url} cannot be written: {error}: fix that and run it again; the lake itself is complete"
        ) from error
    return last - done


def _followed(lake: Lake) -> int:
    if not DeltaTable.is_deltatable(lake.directory.url):
        return 0
    return DeltaTable(lake.directory.url).transaction_version(APPLICATION) or 0


def _append(lake: Lake, manifest: Manifest) -> None:
    table = _table(lake, manifest.columns)
    # A compaction leaves the rows what they are: anyone who reads the changes of the table has nothing to read then.
    is_new = manifest.change is CommitKind.EXPORT
    actions: list[AddAction | RemoveAction] = [
        *(_add(f, is_new) for f in manifest.add),
        *(_remove(f, is_new) for f in _removed(lake, manifest)),
    ]
    table.create_write_transaction(
        actions,
        mode="append",
        schema=table.schema(),
        partition_by=PARTITIONED_BY,
        commit_properties=CommitProperties(app_transactions=[Transaction(APPLICATION, manifest.number)]),
    )


def _table(lake: Lake, columns: tuple[LakeColumn, ...]) -> DeltaTable:
    """Return the table, with all of these columns."""
    url, wanted = lake.directory.url, arrow_schema(columns)
    if not DeltaTable.is_deltatable(url):
        DeltaTable.create(url, schema=wanted, partition_by=PARTITIONED_BY, mode="ignore")
    table = DeltaTable(url)
    there = {field.name for field in table.schema().fields}
    if new := [field for field in Schema.from_arrow(wanted).fields if field.name not in there]:
        table.alter.add_columns(new)
        table = DeltaTable(url)
    return table


def _removed(lake: Lake, manifest: Manifest) -> list[DataFile]:
    """Return the files that a manifest removes, as the manifests before it added them."""
    wanted = set(manifest.remove)
    found: list[DataFile] = []
    for number in range(manifest.number - 1, 0, -1):
        if len(found) == len(wanted):
            break
        found += [f for f in lake.manifest(number).add if f.path in wanted]
    return found


def _add(file: DataFile, is_new: bool) -> AddAction:
    rows = json.dumps({"numRecords": file.rows})
    return AddAction(file.path, file.bytes, _partition(file), _now_ms(), is_new, rows)


def _remove(file: DataFile, is_new: bool) -> RemoveAction:
    return RemoveAction(file.path, is_new, _now_ms(), file.bytes, _partition(file))


def _partition(file: DataFile) -> dict[str, str | None]:
    return {"date": file.date.isoformat(), "topic": file.topic}


def _now_ms() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)
