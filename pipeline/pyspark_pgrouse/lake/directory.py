"""The directory of a lake: on a file system, or in an object store, by fsspec."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self
from uuid import uuid4

from fsspec import filesystem
from fsspec.core import url_to_fs

from pgrouse.errors import ConfigError, ExitCode, PgrouseError

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

# Hadoop's names of what fsspec calls otherwise.
SCHEMES = {"s3a": "s3", "s3n": "s3", "abfss": "abfs"}
TEMPORARY = "_pgrouse/tmp"
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class LakeUnwritable(PgrouseError):
    """The lake could not be read or written, for a reason outside of it. Nothing of what is committed has changed."""

    exit_code = ExitCode.TRY_AGAIN


@dataclass(frozen=True)
class Entry:
    """A file that is there. path: from the root of the lake; changed_at: None where the store does not say."""

    path: str
    bytes: int
    changed_at: datetime | None


@dataclass(frozen=True)
class Directory:
    """Where a lake is. It can be sent to executors, which open it again.

    Attributes:
        url: as it was given.
        protocol: of fsspec.
        root: the path in it.
    """

    url: str
    protocol: str
    root: str
    options: dict[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def at(cls, url: str) -> Self:
        """Name a directory: a path, or a URL of a scheme that fsspec knows.

        Raises:
            ConfigError: the scheme is unknown, or its package is not installed.
        """
        scheme, mark, rest = url.partition("://")
        known = f"{SCHEMES.get(scheme, scheme)}{mark}{rest}" if mark else str(Path(url).expanduser().resolve())
        try:
            fs, root = url_to_fs(known)
        except (ValueError, ImportError) as error:
            raise ConfigError(f"the lake {url} cannot be reached: {error}") from error
        protocol = fs.protocol if isinstance(fs.protocol, str) else fs.protocol[0]
        return cls(url if mark and protocol != "file" else root, protocol, root.rstrip("/"), dict(fs.storage_options))

    @property
    def is_local(self) -> bool:
        """Whether it lies on a file system that this machine mounts."""
        return self.protocol == "file"

    @cached_property
    def _fs(self) -> AbstractFileSystem:
        # What is listed must be what is there, not what was there a minute ago.
        return filesystem(self.protocol, **self.options | {"use_listings_cache": False})

    def full(self, path: str) -> str:
        """Return a path of the lake as others open it: with the scheme that was given."""
        return f"{self.url.rstrip('/')}/{path}"

    def is_empty(self) -> bool:
        """Whether nothing is in it, or it is not there."""
        with self._explained("read"):
            try:
                return not self._fs.ls(self.root, detail=False)
            except FileNotFoundError:
                return True

    def read(self, path: str) -> bytes | None:
        """Return what a file holds; None if it is not there."""
        with self._explained("read"):
            try:
                return bytes(self._fs.cat_file(self._of(path)))
            except FileNotFoundError:
                return None

    def names(self, path: str) -> list[str]:
        """Return the names of what is in a directory; none if it is not there."""
        with self._explained("read"):
            try:
                return [str(name).rstrip("/").rsplit("/", 1)[-1] for name in self._fs.ls(self._of(path), detail=False)]
            except FileNotFoundError:
                return []

    def entries(self, pattern: str) -> list[Entry]:
        """Return the files whose path fits a pattern with `*`."""
        with self._explained("read"):
            found = self._fs.glob(self._of(pattern), detail=True)
        return [
            Entry(str(path)[len(self.root) + 1 :], info["size"] or 0, _changed_at(info)) for path, info in found.items()
        ]

    def size(self, path: str) -> int | None:
        """Return how big a file is; None if it is not there."""
        with self._explained("read"):
            try:
                return int(self._fs.info(self._of(path))["size"])
            except FileNotFoundError:
                return None

    def create(self, path: str, content: bytes) -> bool:
        """Write a file that must not be there yet, all of it or nothing; return False if it is there.

        On a file system it is on disk when this returns. In an object store that cannot refuse what exists, the last writer wins.
        """
        with self._explained("written"):
            return self._link(path, content) if self.is_local else self._put(path, content)

    def replace(self, path: str, content: bytes) -> None:
        """Write a file, all of it or nothing, whatever was there."""
        with self._explained("written"):
            if not self.is_local:
                self._fs.pipe_file(self._of(path), content)
                return
            with self._draft(path, content) as draft:
                draft.replace(self._of(path))

    @contextmanager
    def sink(self, path: str) -> Iterator[IO[bytes]]:
        """Open a file for writing under its name; it is complete, and there, when this ends without an error.

        On a file system it is written elsewhere, brought to disk and renamed; an object store shows it only when it is closed.
        """
        with self._explained("written"):
            if self.is_local:
                with self._renamed(path) as stream:
                    yield stream
                return
            stream = self._fs.open(self._of(path), "wb")
            try:
                yield stream
            except BaseException:
                _discard(stream)
                raise
            stream.close()

    @contextmanager
    def source(self, path: str) -> Iterator[IO[bytes]]:
        """Open a file for reading."""
        with self._explained("read"), self._fs.open(self._of(path), "rb") as stream:
            yield stream

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files, those that are there."""
        with self._explained("written"):
            for path in paths:
                try:
                    self._fs.rm_file(self._of(path))
                except FileNotFoundError:
                    continue

    def settle(self, folders: Iterable[str]) -> None:
        """Bring the names of new files in these directories to disk: a commit must not outlive them."""
        if self.is_local:
            for folder in {parent for path in folders for parent in (path, path.rsplit("/", 1)[0], "")}:
                _sync(Path(self._of(folder)))

    def empty_temporary(self) -> None:
        """Remove files that were not completed. Only the one that is alone in the lake may."""
        if self.is_local:
            shutil.rmtree(self._of(TEMPORARY), ignore_errors=True)

    def _of(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root

    def _put(self, path: str, content: bytes) -> bool:
        # Stores that know no condition still get an answer: anyone who exports holds a lock in the database.
        if self._fs.exists(self._of(path)):
            return False
        try:
            self._fs.pipe_file(self._of(path), content, mode="create")
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno == errno.EEXIST or "PreconditionFailed" in str(error) or "pre-conditions" in str(error):
                return False
            raise
        return True

    def _link(self, path: str, content: bytes) -> bool:
        with self._draft(path, content) as draft:
            try:
                os.link(draft, self._of(path))
            except FileExistsError:
                return False
        _sync(Path(self._of(path)).parent)
        return True

    @contextmanager
    def _draft(self, path: str, content: bytes) -> Iterator[Path]:
        target = Path(self._of(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{target.name}.{uuid4().hex}")
        try:
            with draft.open("wb") as stream:
                stream.write(content)
                _flush(stream)
            yield draft
        finally:
            draft.unlink(missing_ok=True)

    @contextmanager
    def _renamed(self, path: str) -> Iterator[IO[bytes]]:
        target = Path(self._of(path))
        draft = Path(self._of(TEMPORARY)) / target.name
        draft.parent.mkdir(parents=True, exist_ok=True)
        try:
            with draft.open("wb") as stream:
                yield stream
                _flush(stream)
            target.parent.mkdir(parents=True, exist_ok=True)
            draft.rename(target)
        finally:
            draft.unlink(missing_ok=True)

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        """Say of an error of the store where it happened and what to do.

        Raises:
            ConfigError: it is not permitted, or the place does not exist.
            LakeUnwritable: anything else, such as a full disk.
        """
        try:
            yield
        except (PgrouseError, FileExistsError):
            raise
        except (PermissionError, NotADirectoryError, FileNotFoundError) as error:
            why = error.strerror or error
            raise ConfigError(
                f"the lake {self.url} cannot be {what}: {why}: check its path and the rights there"
            ) from error
        except OSError as error:
            raise LakeUnwritable(_failure(self.url, what, error)) from error


def _failure(url: str, what: str, error: OSError) -> str:
    why = error.strerror or str(error)
    fix = "make room" if error.errno in FULL else "fix that"
    return f"the lake {url} cannot be {what}: {why}: {fix} and run it again; it goes on where it stopped"


def _changed_at(info: dict[str, Any]) -> datetime | None:
    said = info.get("mtime") or info.get("LastModified") or info.get("updated")
    if isinstance(said, int | float):
        return datetime.fromtimestamp(said, UTC)
    if isinstance(said, str):
        return datetime.fromisoformat(said)
    return said if isinstance(said, datetime) else None


def _discard(stream: Any) -> None:
    """End an upload without a file coming out of it."""
    stream.discard()
    stream.closed = True


def _flush(stream: IO[bytes]) -> None:
    stream.flush()
    os.fsync(stream.fileno())


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
