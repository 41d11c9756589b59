"""A lake: the archive as Parquet files, partitioned by date and topic.

    LAKE/_pgrouse/lake.json                      which database, which topics, since when; written once
    LAKE/_manifest/<number, 20 digits>.json      one commit: the files that it adds and removes. Written last: what no manifest names is not there
    LAKE/_checkpoint/<number, 20 digits>.json    all files as of that commit, so that readers begin there
    LAKE/_pgrouse/batch/<number>.json            the batch that is being written; gone once it is committed
    LAKE/_pgrouse/tmp/                           files that are not complete yet (file systems only)
    LAKE/date=YYYY-MM-DD/topic=<escaped>/<number>-<slice>-<attempt>-<n>.parquet

Dates are those of `archived_at` in UTC. A file contains its date and topic as columns, so that readers need not parse paths. A name is never used
twice: a replay leaves the files of the attempt before unnamed, and the next run removes them. Readers take a snapshot: the manifests in the order
of their numbers, or the newest checkpoint and the manifests after it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pgrouse.errors import ConfigError
from pyspark_pgrouse.lake.directory import Directory
from pyspark_pgrouse.lake.frame import frame
from pyspark_pgrouse.lake.manifest import CommitKind, DataFile, LakeColumn, Manifest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = 1
INFO_FILE = "_pgrouse/lake.json"
MANIFESTS = "_manifest"
CHECKPOINTS = "_checkpoint"
BEGUN = "_pgrouse/batch"


@dataclass(frozen=True)
class LakeInfo:
    """What a lake is, said once when it is made.

    Attributes:
        lake: its own name in the world: a UUID.
        name: of the export that writes it.
        system_identifier: of the database cluster whose archive it holds.
        topics: the only ones that it holds; empty = all.
        since: it holds what was archived at or after this; None = everything.
        delta: whether a Delta table follows its manifests.
        created_at: when it was made.
        format: of this layout.
    """

    lake: str
    name: str
    system_identifier: str
    topics: tuple[str, ...]
    since: datetime | None
    delta: bool
    created_at: datetime
    format: int = FORMAT

    def as_json(self) -> str:
        """Write it as the file does."""
        return json.dumps(asdict(self), default=datetime.isoformat, indent=1)

    @classmethod
    def from_json(cls, text: bytes, where: str) -> LakeInfo:
        """Read it.

        Raises:
            ConfigError: it is of a format that is not known.
        """
        said = json.loads(text)
        if said.get("format") != FORMAT:
            raise ConfigError(
                f"the lake {where} has format {said.get('format')}, but this version reads {FORMAT}: use the newer pgrouse that wrote it"
            )
        since = said["since"] and datetime.fromisoformat(said["since"])
        created_at = datetime.fromisoformat(said["created_at"])
        return cls(**said | {"topics": tuple(said["topics"]), "since": since, "created_at": created_at})


@dataclass(frozen=True)
class Snapshot:
    """What a lake held at one moment.

    Attributes:
        number: of the last commit in it; 0 = none yet.
        files: all of its files.
        columns: those of any file, in the order in which they came; files that lack one have NULL there.
        end: the offset up to which the archive is in it; None = nothing is.
    """

    number: int
    files: tuple[DataFile, ...]
    columns: tuple[LakeColumn, ...]
    end: dict[str, Any] | None

    def of(
        self, since: datetime | None = None, until: datetime | None = None, topics: Collection[str] = ()
    ) -> list[DataFile]:
        """Return the files that may have rows archived in this time (until is excluded), of these topics (none = all)."""
        first = since.astimezone(UTC).date() if since else date.min
        last = (until.astimezone(UTC) - timedelta(microseconds=1)).date() if until else date.max
        return [f for f in self.files if first <= f.date <= last and (not topics or f.topic in topics)]


@dataclass(frozen=True)
class Lake:
    """A lake that is there.

    Attributes:
        directory: where.
        info: what its file says.
    """

    directory: Directory
    info: LakeInfo

    @classmethod
    def open(cls, url: str) -> Lake:
        """Open a lake: a path, or a URL of `s3a`, `gs`, `hdfs` or whatever else fsspec is set up for.

        Raises:
            ConfigError: there is none, or it cannot be read.
        """
        lake = cls.find(Directory.at(url))
        if lake is None:
            raise ConfigError(f"there is no lake in {url}: make one with `pgrouse pipeline export {url}`")
        return lake

    @classmethod
    def find(cls, directory: Directory) -> Lake | None:
        """Return the lake in a directory; None if there is none."""
        said = directory.read(INFO_FILE)
        return None if said is None else cls(directory, LakeInfo.from_json(said, directory.url))

    @classmethod
    def make(cls, directory: Directory, info: LakeInfo) -> Lake:
        """Make a lake in a directory that is empty.

        Raises:
            ConfigError: there is something in it that is no lake, or it cannot be written.
        """
        if not directory.is_empty():
            raise ConfigError(
                f"{directory.url} is not empty and is no lake: name an empty directory, or one that does not exist"
            )
        directory.create(INFO_FILE, info.as_json().encode())
        return cls(directory, info)

    @cached_property
    def _named(self) -> dict[str, Manifest]:
        return {}

    def snapshot(self) -> Snapshot:
        """Return what is committed now."""
        base = self._checkpoint()
        after = base.number if base else 0
        last = max(map(_number, self.directory.names(MANIFESTS)), default=0)
        # One that is missing is an error, not a commit that never was.
        return _applied(base, [self.manifest(n) for n in range(after + 1, last + 1)])

    def manifest(self, number: int) -> Manifest:
        """Return one commit. Manifests never change, so each is read once."""
        name = f"{MANIFESTS}/{number:020}.json"
        if name not in self._named:
            said = self.directory.read(name)
            if said is None:
                raise ConfigError(f"the lake {self.directory.url} lacks {name}: restore it, or begin a new lake")
            self._named[name] = Manifest.from_json(said)
        return self._named[name]

    def commit(self, manifest: Manifest) -> bool:
        """Make a commit visible, all at once; return False if another commit has this number. It is on disk when this returns."""
        return self.directory.create(f"{MANIFESTS}/{manifest.number:020}.json", manifest.as_json().encode())

    def checkpoint(self, snapshot: Snapshot) -> None:
        """Write down all files of a snapshot, so that readers need not read all manifests up to it."""
        all_of_it = Manifest(
            snapshot.number,
            CommitKind.CHECKPOINT,
            datetime.now(UTC),
            None,
            snapshot.end,
            snapshot.columns,
            snapshot.files,
            (),
        )
        self.directory.create(f"{CHECKPOINTS}/{snapshot.number:020}.json", all_of_it.as_json().encode())

    def begin(self, number: int) -> None:
        """Say that the files of a commit will be written: whatever becomes of it, they are found again."""
        self.directory.replace(f"{BEGUN}/{number:020}.json", b"{}")

    def end(self, number: int) -> None:
        """Say that a commit is made."""
        self.directory.remove([f"{BEGUN}/{number:020}.json"])

    def clean(self) -> None:
        """Remove what commits left that were begun and not made. Only the one that is alone in the lake may.

        A commit that was made may have such files too, of tasks that were tried twice.
        """
        begun = [n for n in map(_number, self.directory.names(BEGUN)) if n]
        named = {f.path for f in self.snapshot().files} if begun else set()
        for number in begun:
            found = self.directory.entries(f"date=*/topic=*/{number:020}-*.parquet")
            self.directory.remove([e.path for e in found if e.path not in named])
            self.end(number)
        self.directory.empty_temporary()

    def files(
        self, since: datetime | None = None, until: datetime | None = None, topics: Collection[str] = ()
    ) -> list[str]:
        """Return the paths of the committed files that may have rows archived in this time (until is excluded), of these topics (none = all)."""
        return [self.directory.full(f.path) for f in self.snapshot().of(since, until, topics)]

    def read(
        self,
        spark: SparkSession,
        since: datetime | None = None,
        until: datetime | None = None,
        topics: Collection[str] = (),
    ) -> DataFrame:
        """Return the rows archived in this time (until is excluded), of these topics (none = all), with all columns that the lake ever had.

        It reads exactly what is committed now, also if batches are written meanwhile.
        """
        snapshot = self.snapshot()
        return frame(spark, self.directory, snapshot.columns, snapshot.of(since, until, topics), since, until)

    def _checkpoint(self) -> Manifest | None:
        newest = max(map(_number, self.directory.names(CHECKPOINTS)), default=0)
        said = self.directory.read(f"{CHECKPOINTS}/{newest:020}.json") if newest else None
        return None if said is None else Manifest.from_json(said)


def _number(name: str) -> int:
    stem = name.removesuffix(".json")
    return int(stem) if stem.isdigit() else 0


def _applied(base: Manifest | None, manifests: Iterable[Manifest]) -> Snapshot:
    files = {f.path: f for f in base.add} if base else {}
    columns = {c.name: c for c in base.columns} if base else {}
    number, end = (base.number, base.end) if base else (0, None)
    for manifest in manifests:
        number, end = manifest.number, manifest.end or end
        for path in manifest.remove:
            files.pop(path, None)
        files |= {f.path: f for f in manifest.add}
        columns |= {c.name: c for c in manifest.columns}
    return Snapshot(number, tuple(files.values()), tuple(columns.values()), end)
