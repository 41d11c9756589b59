"""The place of a lake: a directory, or a URL of an object store, which delta-rs opens for the log and for the files."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import pyarrow.fs as pafs
from deltalake.exceptions import DeltaError
from deltalake.fs import DeltaStorageHandler

from pgrouse.errors import ConfigError
from pyspark_pgrouse.errors import LakeUnwritable

if TYPE_CHECKING:
    from pyarrow import NativeFile

# The environment of the clients of the object stores. Executors get it from the driver.
ENVIRONMENT = ("AWS_", "AZURE_", "GOOGLE_")
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# Errors that delta-rs reports only in words.
NOT_PERMITTED = re.compile(
    r"40[134] |Unauthorized|Forbidden|AccessDenied|NoSuchBucket|Unknown scheme|kind: "
    r"(?:NotFound|PermissionDenied|NotADirectory)"
)
COLOR = re.compile(r"\x1b\[[0-9;]*m|↳")
LONGEST = 300  # the longest error text: some stores answer with a page


@dataclass(frozen=True)
class Directory:
    """The place of a lake. It can be sent to executors, which open it again.

    Attributes:
        url: a URL, or an absolute path.
        options: options of the store for delta-rs (`storage_options`); they may hold secrets.
    """

    url: str
    options: dict[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def at(cls, url: str, options: Mapping[str, str] = MappingProxyType({})) -> Self:
        """Return a directory: a path, or a URL of a scheme that delta-rs knows.

        Args:
            url: the URL or path.
            options: options of the store, in addition to those in the environment.

        Raises:
            ConfigError: the scheme is unknown.
        """
        scheme, mark, rest = url.partition("://")
        if not mark or scheme == "file":
            return cls(str(Path(rest if mark else url).expanduser().resolve()))
        from_environment = {name: value for name, value in os.environ.items() if name.startswith(ENVIRONMENT)}
        made = cls(url.rstrip("/"), from_environment | dict(options))
        _ = made.filesystem
        return made

    @property
    def is_local(self) -> bool:
        """Whether it is on a file system that this machine mounts."""
        return "://" not in self.url

    @cached_property
    def filesystem(self) -> pafs.FileSystem:
        """Its files, for Arrow; paths are from the root of the lake."""
        if self.is_local:
            return pafs.SubTreeFileSystem(self.url, pafs.LocalFileSystem())
        with self.explained("read"):
            return pafs.PyFileSystem(DeltaStorageHandler(self.url, self.options))

    def __getstate__(self) -> dict[str, Any]:
        # An open client is not sent to executors.
        return {"url": self.url, "options": self.options}

    def full(self, path: str) -> str:
        """Return a path of the lake as other programs open it: with the scheme that was given."""
        return f"{self.url}/{path}"

    def is_empty(self) -> bool:
        """Whether it is empty or does not exist."""
        with self.explained("read"):
            return not self.filesystem.get_file_info(pafs.FileSelector("", allow_not_found=True))

    def make(self) -> None:
        """Create it, where directories must be created."""
        with self.explained("written"):
            if self.is_local:
                Path(self.url).mkdir(parents=True, exist_ok=True)

    def find(self, part: str) -> list[str]:
        """Return the paths of the files whose names contain this."""
        with self.explained("read"):
            found = self.filesystem.get_file_info(pafs.FileSelector("", recursive=True))
        return [info.path for info in found if info.is_file and part in info.base_name]

    def size(self, path: str) -> int | None:
        """Return the size of a file; None if it does not exist."""
        with self.explained("read"):
            size: int | None = self.filesystem.get_file_info(path).size
            return size

    @contextmanager
    def sink(self, path: str) -> Iterator[NativeFile]:
        """Open a new file for writing.

        If this ends without an error, the file is complete, and on disk if the lake is on a file system; else it is
        removed.
        """
        with self.explained("written"):
            if self.is_local:
                Path(self.full(path)).parent.mkdir(parents=True, exist_ok=True)
            stream = self.filesystem.open_output_stream(path)
            try:
                yield stream
                stream.close()
                if self.is_local:
                    _sync(self.full(path))
            except BaseException:
                with suppress(OSError):
                    stream.close()
                self.remove([path])
                raise

    def remove(self, paths: Iterable[str]) -> None:
        """Remove those of these files that exist."""
        with self.explained("written"):
            for path in paths:
                with suppress(FileNotFoundError):
                    self.filesystem.delete_file(path)

    def settle(self, paths: Iterable[str]) -> None:
        """Write new files and their names to disk: a commit must not be durable before its files are."""
        if self.is_local:
            for each in {each for path in paths for each in (Path(path), *Path(path).parents)}:
                _sync(self.full(str(each)))

    @contextmanager
    def explained(self, what: str) -> Iterator[None]:
        """Convert an error of the store to one that says where it happened and what to do.

        Raises:
            ConfigError: it is not permitted, or the place does not exist.
            LakeUnwritable: anything else, such as a full disk.
        """
        try:
            yield
        except (OSError, DeltaError) as error:
            number = getattr(error, "errno", None)
            why = os.strerror(number) if number else " ".join(COLOR.sub("", str(error)).split())[:LONGEST]
            said = f"the lake {self.url} cannot be {what}: {why}"
            if isinstance(error, PermissionError | NotADirectoryError | FileNotFoundError) or NOT_PERMITTED.search(why):
                raise ConfigError(f"{said}: check its path and the rights there") from error
            fix = "make room" if number in FULL else "fix that"
            raise LakeUnwritable(f"{said}: {fix} and run it again; it goes on where it stopped") from error


def _sync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
