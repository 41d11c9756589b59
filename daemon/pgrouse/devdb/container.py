"""PostgreSQL with pg_cron in a container, built from `docker/postgres`.

Needs a container engine, and testcontainers.
"""

from __future__ import annotations

import os
import secrets
import shlex
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.conninfo import make_conninfo

from pgrouse.devdb import os_user
from pgrouse.devdb.scratch import OWNER
from pgrouse.devdb.server import cron_settings
from pgrouse.errors import DatabaseUnreachable

if TYPE_CHECKING:
    from testcontainers.core.docker_client import DockerClient

Handle = Any  # docker.models.containers.Container; the SDK has no types
CHECKOUT = Path(__file__).parents[3]
DOCKERFILE = CHECKOUT / "docker" / "postgres" / "Dockerfile"
IMAGE = "pgrouse-postgres:17"
USUAL_SOCKET = "/var/run/docker.sock"
START_WITHIN_S = 120
OWNER_LABEL = "pgrouse.owner"
# The engine's answers when a container is gone, and while it is being removed.
ALREADY_GOING = {404, 409}
DATA = "/var/lib/postgresql/data"
# testcontainers' reaper would need another image; `remove_abandoned` does its work.
os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")


@cache
def why_not() -> str | None:
    """Return why no container is available here; None if one seems to be: the image is not built for this. Cached."""
    if not DOCKERFILE.exists():
        return "there is no docker/postgres/Dockerfile next to the package: containers are made from a checkout"
    if find_spec("testcontainers") is None:
        return "testcontainers is not installed"
    return _why_no_engine()


def _why_no_engine() -> str | None:
    """Ask the engine.

    Try the usual socket first: the SDK takes half a second to import, and leaks if no engine answers.
    """
    try:
        if not os.environ.get("DOCKER_HOST"):
            with socket.socket(socket.AF_UNIX) as usual:
                usual.connect(USUAL_SOCKET)
        with _engine() as engine:
            engine.client.ping()
    except FileNotFoundError:
        return f"no container engine runs (there is no {USUAL_SOCKET}, and DOCKER_HOST is not set)"
    except Exception as error:  # noqa: BLE001 - the SDK lets errors of requests and urllib3 through, too
        return f"no container engine answers: {str(error).splitlines()[0]}"
    return None


def build() -> None:
    """Build the image; quick when nothing changed.

    Raises:
        DatabaseUnreachable: with the engine's error.
    """
    from testcontainers.core.image import DockerImage  # noqa: PLC0415 - extra demo

    # Build in the host's network: the build installs packages, and only the host may reach the proxies for them.
    image = DockerImage(path=CHECKOUT, dockerfile_path=str(DOCKERFILE), tag=IMAGE, clean_up=False, network_mode="host")
    try:
        image.build()
    except Exception as error:  # see why_not
        raise DatabaseUnreachable(f"the image {IMAGE} cannot be built: {error}") from error


def remove_abandoned() -> None:
    """Remove the containers whose owner's folder is gone."""
    with _engine() as engine:
        for handle in _ours(engine):
            if not Path(handle.labels[OWNER_LABEL]).exists():
                _remove(handle)


def remove_all() -> None:
    """Remove the containers whose owner is gone or is not a running session, and the image."""
    with _engine() as engine:
        for handle in _ours(engine):
            if not (Path(handle.labels[OWNER_LABEL]) / OWNER).exists():
                _remove(handle)
        for image in engine.client.images.list(IMAGE):
            image.remove(force=True)


class Container:
    """A PostgreSQL server in a container of the image that `build` builds.

    Args:
        owner: when this folder is gone, `remove_abandoned` removes the container.
        name: a container with this name outlives the process, and the next process finds it again.
        database: created if missing; pg_cron keeps its jobs in it.
        settings: further settings of the server, fixed when the container is created.
        in_memory: keep the data in memory, if there is enough of it; the data is gone when the container stops.
    """

    def __init__(
        self,
        owner: Path,
        *,
        name: str | None = None,
        database: str = "pgrouse",
        settings: Mapping[str, str] | None = None,
        in_memory: bool = False,
    ) -> None:
        self.database = database
        self.pg_cron: str | None = None
        self._owner = owner
        self._name = name
        self._in_memory = in_memory and os_user.memory_folder() is not None
        self._settings = cron_settings(database) | {"max_worker_processes": "32", **(settings or {})}
        self._where: dict[str, str] = {}
        self._handle: Handle = None

    def __str__(self) -> str:
        return f"container {IMAGE}" + (f" with pg_cron {self.pg_cron}" if self.pg_cron else "")

    def dsn(self, dbname: str | None = None, user: str = "postgres", **options: str) -> str:
        """Return a connection string for `dbname` (default: `database`)."""
        return make_conninfo("", **(self._where | {"user": user, "dbname": dbname or self.database} | options))

    def start(self) -> bool:
        """Start the container, and wait until the server answers; return False if it ran already.

        It is created first if needed.

        Raises:
            DatabaseUnreachable: the server does not answer in time; with the end of its log.
        """
        self._handle = self._handle or self._find()
        ran = self._runs()
        if self._handle is None:
            self._handle = self._make()
        if not ran:
            self._handle.start()
        self._wait()
        query = self._handle.exec_run(["dpkg-query", "-W", "-f", "${Version}", "postgresql-*-cron"])
        self.pg_cron = query.output.decode().split("-")[0]
        return not ran

    def stop(self) -> None:
        """Stop the container. A named one keeps its data."""
        if self._handle is not None:
            self._handle.stop()

    def remove(self) -> None:
        """Delete the container and its data."""
        if self._handle is not None:
            _remove(self._handle)

    def _runs(self) -> bool:
        if self._handle is None:
            return False
        self._handle.reload()
        return bool(self._handle.status == "running")

    def _find(self) -> Handle | None:
        if self._name is None:
            return None
        with _engine() as engine:
            found = engine.client.containers.list(all=True, filters={"name": f"^{self._name}$"})
        return found[0] if found else None

    def _make(self) -> Handle:
        from testcontainers.core.container import DockerContainer  # noqa: PLC0415 - extra demo

        settings = [word for name, value in self._settings.items() for word in ("-c", f"{name}={value}")]
        container = (
            DockerContainer(IMAGE, name=self._name, command=shlex.join(["postgres", *settings]))
            .with_env("POSTGRES_PASSWORD", secrets.token_urlsafe(24))
            .with_env("POSTGRES_DB", self.database)
            .with_env("PGROUSE_INSTALL", "off")
            .with_exposed_ports(5432)
            .with_kwargs(labels={OWNER_LABEL: str(self._owner)}, shm_size="256m", **_network())
        )
        if self._in_memory:
            container.with_tmpfs_mount(DATA, "rw")
        return container.start().get_wrapped_container()

    def _wait(self) -> None:
        """Wait for the server over TCP: while it runs its init scripts it listens only on its socket."""
        ways = _ways_to(self._handle)
        deadline = time.monotonic() + START_WITHIN_S
        while not any(self._answers(way) for way in ways):
            if not self._runs() or time.monotonic() > deadline:
                log = self._handle.logs(tail=10).decode()
                raise DatabaseUnreachable(f"PostgreSQL in the container does not answer; its log ends:\n{log}")
            time.sleep(0.05)
        # The address that answered first may be the last one tried, at the moment when the server became ready.
        any(self._answers(way) for way in ways)

    def _answers(self, way: dict[str, str]) -> bool:
        self._where = way
        try:
            with psycopg.connect(self.dsn(connect_timeout="2")) as conn:
                conn.execute("CREATE EXTENSION IF NOT EXISTS pg_cron")
        except psycopg.OperationalError:
            return False
        return True


@contextmanager
def _engine() -> Iterator[DockerClient]:
    """Talk to the engine. The import is here because it takes half a second."""
    from testcontainers.core.docker_client import DockerClient  # noqa: PLC0415 - extra demo

    engine = DockerClient()
    try:
        yield engine
    finally:
        engine.client.close()


def _remove(handle: Handle) -> None:
    """Remove a container.

    Other sessions may remove it at the same time: sessions that start together find the same abandoned containers.

    Raises:
        APIError: the engine cannot do it.
    """
    from docker.errors import APIError  # noqa: PLC0415 - extra demo

    try:
        handle.remove(force=True, v=True)
    except APIError as error:
        if error.status_code not in ALREADY_GOING:
            raise


def _ours(engine: DockerClient) -> list[Handle]:
    return list(engine.client.containers.list(all=True, filters={"label": OWNER_LABEL}, ignore_removed=True))


def _network() -> dict[str, str]:
    """Return the network to name; none, unless a container in the host's network uses the engine.

    Testcontainers would choose that network there.
    """
    with _engine() as engine:
        return {"network": "bridge"} if engine.find_host_network() == "host" else {}


def _ways_to(handle: Handle) -> list[dict[str, str]]:
    """Return the ways to reach the server.

    They are the published port on the engine's host, or on this host, or the containers' network.
    """
    handle.reload()
    variables = dict(word.split("=", 1) for word in handle.attrs["Config"]["Env"])
    with _engine() as engine:
        published, host = engine.port(handle.id, 5432), engine.host()
    inside = [network["IPAddress"] for network in handle.attrs["NetworkSettings"]["Networks"].values()]
    # Some engines publish on IPv4 only.
    places = [
        (host.replace("localhost", "127.0.0.1"), published),
        ("127.0.0.1", published),
        *((ip, "5432") for ip in inside),
    ]
    return [{"host": host, "port": port, "password": variables["POSTGRES_PASSWORD"]} for host, port in places if host]
