"""The destination of a report: a folder with `report.html` and `tables/`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from fsspec.core import url_to_fs

from pgrouse.errors import ConfigError
from pyspark_pgrouse.report.tables import NAMES

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

PAGE = "report.html"
# Hadoop's schemes and their names in fsspec.
SCHEMES = {"s3a": "s3", "s3n": "s3", "abfss": "abfs"}


@dataclass(frozen=True)
class Destination:
    """A folder: a path, or a URL of a scheme that fsspec knows. url: as it was given; a path is made absolute."""

    url: str

    @classmethod
    def at(cls, given: str) -> Destination:
        """Create the folder, and check that a file can be written there.

        The check is now, and not an hour later after everything is read.

        Raises:
            ConfigError: it cannot be written.
        """
        made = cls(given.rstrip("/") if "://" in given else str(Path(given).expanduser().resolve()))
        try:
            fs, root = made._open()
            fs.makedirs(f"{root}/tables", exist_ok=True)
            fs.pipe_file(f"{root}/.writable", b"")
            fs.rm_file(f"{root}/.writable")
        except (OSError, ValueError, ImportError) as error:
            why = getattr(error, "strerror", None) or error
            raise ConfigError(f"--out {given} cannot be written: {why}: name a folder that can") from error
        return made

    @property
    def page(self) -> str:
        """The place of the page."""
        return f"{self.url}/{PAGE}"

    def table(self, name: str) -> str:
        """Return the place of a table."""
        return f"{self.url}/tables/{name}.parquet"

    def write(self, tables: Path, html: str) -> None:
        """Write the tables, from a folder, and then the page.

        A reader of a file sees either the old one or the new one.
        """
        fs, root = self._open()
        for name in NAMES:
            _replace(fs, tables / f"{name}.parquet", f"{root}/tables/{name}.parquet")
        (tables / PAGE).write_text(html, encoding="utf-8")
        _replace(fs, tables / PAGE, f"{root}/{PAGE}")

    def _open(self) -> tuple[AbstractFileSystem, str]:
        scheme, mark, rest = self.url.partition("://")
        fs, root = url_to_fs(f"{SCHEMES.get(scheme, scheme)}{mark}{rest}")
        return fs, root.rstrip("/")


def _replace(fs: AbstractFileSystem, source: Path, path: str) -> None:
    folder, _, name = path.rpartition("/")
    draft = f"{folder}/.{uuid4().hex}-{name}"
    fs.put_file(str(source), draft)
    fs.mv(draft, path)
