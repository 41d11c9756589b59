"""Where a report goes: `report.html`, and `tables/` beside it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from fsspec.core import url_to_fs

from pgrouse.errors import ConfigError
from pyspark_pgrouse.lake.directory import SCHEMES

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

PAGE = "report.html"


@dataclass(frozen=True)
class Destination:
    """A folder: a path, or a URL that Spark can write to. On a cluster every machine must reach it.

    Attributes:
        url: as it was given; a path is made absolute.
        spool: where rows are copied to while the report is made; no other report's.
    """

    url: str
    spool: str

    @classmethod
    def at(cls, given: str) -> Destination:
        """Make the folder, and try that a file can be written there: before Spark starts, not an hour later.

        Raises:
            ConfigError: it cannot be written.
        """
        url = given.rstrip("/") if "://" in given else str(Path(given).expanduser().resolve())
        made = cls(url, f"{url}/.reading-{uuid4().hex}")
        try:
            fs, root = made._open()
            fs.makedirs(root, exist_ok=True)
            fs.pipe_file(f"{root}/.writable", b"")
            fs.rm_file(f"{root}/.writable")
        except (OSError, ValueError, ImportError) as error:
            why = getattr(error, "strerror", None) or error
            raise ConfigError(f"--out {given} cannot be written: {why}: name a folder that can") from error
        return made

    @property
    def tables(self) -> str:
        """Where the tables are."""
        return f"{self.url}/tables"

    @property
    def page(self) -> str:
        """Where the page is."""
        return f"{self.url}/{PAGE}"

    def write_page(self, html: str) -> None:
        """Write the page; a reader sees the old one or the new one."""
        fs, root = self._open()
        draft = f"{self.spool.removeprefix(self.url)}.html"
        fs.pipe_file(f"{root}{draft}", html.encode())
        fs.mv(f"{root}{draft}", f"{root}/{PAGE}")

    def clean(self) -> None:
        """Remove what was copied."""
        fs, root = self._open()
        place = f"{root}{self.spool.removeprefix(self.url)}"
        if fs.exists(place):
            fs.rm(place, recursive=True)

    def _open(self) -> tuple[AbstractFileSystem, str]:
        scheme, mark, rest = self.url.partition("://")
        fs, root = url_to_fs(f"{SCHEMES.get(scheme, scheme)}{mark}{rest}")
        return fs, root.rstrip("/")
