"""The images and docker/compose.yaml: a database with pg_cron and the schema, and a daemon without privileges.

If Docker has no Compose plugin the same containers are run one by one.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

import psycopg
import pytest

from pgrouse.database.install import pg_cron as cron
from pgrouse.database.install import schema

CHECKOUT = Path(__file__).parents[2]
COMPOSE_FILE = CHECKOUT / "docker" / "compose.yaml"
IMAGES = {"pgrouse-postgres": "docker/postgres/Dockerfile", "pgrouse": "docker/daemon/Dockerfile"}
PASSWORD = "it's a \\ secret"
Connection = psycopg.Connection[Any]
Eventually = Callable[..., Any]

pytestmark = [pytest.mark.container, pytest.mark.slow, pytest.mark.timeout(900)]


def docker(*arguments: str | Path, **environment: str) -> str:
    """Run a command of Docker and return what it printed."""
    command = ["docker", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | environment)
    assert done.returncode == 0, f"{shlex.join(command)} failed:\n{done.stdout}{done.stderr}"
    return done.stdout


def complaint(*arguments: str) -> str:
    """Run a command of Docker that must fail and return its error."""
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    return done.stderr


def has_compose() -> bool:
    return subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0


@dataclass(frozen=True)
class Stack:
    """The two containers, by name."""

    db: str
    daemon: str

    def connect(self, dbname: str = "queue") -> Connection:
        port = docker("port", self.db, "5432").split("\n", 1)[0].rsplit(":", 1)[1]
        dsn = psycopg.conninfo.make_conninfo(
            host="127.0.0.1", port=port, user="postgres", password=PASSWORD, dbname=dbname
        )
        return psycopg.connect(dsn, autocommit=True)

    def psql(self, sql: str) -> str:
        return docker("exec", self.db, "psql", "-U", "postgres", "-d", "queue", "-qAtc", sql).strip()


def ready(db: str) -> bool:
    """Return whether the database answers. Over TCP: while its init scripts run it only listens on its socket."""
    ask = ["docker", "exec", db, "pg_isready", "--quiet", "--host=127.0.0.1"]
    assert subprocess.run(ask, check=False).returncode == 0, docker("logs", "--tail", "20", db)
    return True


def healthy(container: str) -> bool:
    """Return whether the container is healthy; as a condition to wait for: return its log if it is not."""
    health = docker("inspect", "--format", "{{.State.Health.Status}}", container).strip()
    assert health == "healthy", docker("logs", "--tail", "20", container)
    return True


@pytest.fixture(scope="module")
def images() -> None:
    """Both images, built in the host's network: a bridge may not reach the package registries."""
    for tag, dockerfile in IMAGES.items():
        docker("build", "--quiet", "--network", "host", "-t", tag, "-f", CHECKOUT / dockerfile, CHECKOUT)


@pytest.fixture(scope="module")
def stack(images: None) -> Iterator[Stack]:
    """Both containers, running."""
    run = by_compose if has_compose() else one_by_one
    yield from run(f"pgrouse-test-{token_hex(4)}")


def by_compose(project: str) -> Iterator[Stack]:
    compose = ("compose", "-f", COMPOSE_FILE, "-p", project)
    settings = {
        "PGROUSE_PORT": "0",
        "PGROUSE_WEB_PORT": "0",
        "PGROUSE_POSTGRES_PASSWORD": PASSWORD,
        "PGROUSE_WORKER_PASSWORD": PASSWORD,
    }
    try:
        docker(*compose, "up", "--detach", "--no-build", **settings)
        yield Stack(f"{project}-db-1", f"{project}-daemon-1")
    finally:
        docker(*compose, "down", "--volumes", "--timeout", "1", **settings)


def one_by_one(project: str) -> Iterator[Stack]:
    stack = Stack(f"{project}-db", f"{project}-daemon")
    hardening = ("--network", project, "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
    with ExitStack() as ends:
        docker("network", "create", project)
        ends.callback(docker, "network", "rm", project)
        docker(
            "run", "--detach", "--name", stack.db, *hardening, "--publish", "127.0.0.1::5432",
            *(word for each in ("CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID") for word in ("--cap-add", each)),
            "--env", "POSTGRES_DB=queue",
            "--env", f"POSTGRES_PASSWORD={PASSWORD}",
            "--env", f"PGROUSE_WORKER_PASSWORD={PASSWORD}",
            "--volume", f"{CHECKOUT}/examples:/examples:ro",
            "--volume", f"{CHECKOUT}/docker/examples.sql:/docker-entrypoint-initdb.d/40-examples.sql:ro",
            "pgrouse-postgres",
        )  # fmt: skip
        ends.callback(docker, "rm", "--force", "--volumes", stack.db)
        docker(
            "run", "--detach", "--name", stack.daemon, *hardening, "--read-only", "--tmpfs", "/tmp", "--init",
            "--env", f"PGHOST={stack.db}",
            "--env", "PGDATABASE=queue",
            "--env", "PGUSER=pgrouse_worker",
            "--env", f"PGPASSWORD={PASSWORD}",
            "--volume", f"{CHECKOUT}/examples:/app:ro",
            "pgrouse",
        )  # fmt: skip
        ends.callback(docker, "rm", "--force", "--volumes", stack.daemon)
        yield stack


@pytest.fixture
def conn(stack: Stack, eventually: Eventually) -> Iterator[Connection]:
    """A connection of the superuser to the queue."""
    eventually(lambda: ready(stack.db), within_s=240)
    with stack.connect() as conn:
        yield conn


def test_the_database_has_the_schema_at_its_first_start(conn: Connection) -> None:
    schema.check(conn)

    assert schema.migrate(conn, dry_run=True) == []


@pytest.mark.long
def test_the_ledger_equals_that_of_the_migrator(conn: Connection) -> None:
    ledger = conn.execute("SELECT kind, name, digest FROM messages.migration").fetchall()
    versions = conn.execute("SELECT DISTINCT version FROM messages.migration").fetchall()

    assert sorted(ledger) == sorted((each.kind, each.name, each.digest) for each in schema.scripts())
    assert versions == [(docker("run", "--rm", "pgrouse", "--version").split()[-1],)]


@pytest.mark.long
def test_the_schema_equals_that_of_the_migrator_including_grants(stack: Stack, conn: Connection) -> None:
    conn.execute("CREATE DATABASE migrated")
    with stack.connect("migrated") as other:
        schema.migrate(other)
        other.execute(schema.script("cron/role.sql"))

    by_psql, by_migrator = (dump(stack, dbname) for dbname in ("queue", "migrated"))

    conn.execute("DROP DATABASE migrated WITH (FORCE)")
    assert "CREATE TABLE messages.message " in by_psql
    assert by_psql == by_migrator


def dump(stack: Stack, dbname: str) -> str:
    text = docker("exec", stack.db, "pg_dump", "-U", "postgres", "--schema=messages", "--schema-only", dbname)
    # These lines have a number that is random.
    return "".join(
        line for line in text.splitlines(keepends=True) if not line.startswith(("\\restrict", "\\unrestrict"))
    )


def test_pg_cron_maintains_the_queue(conn: Connection, eventually: Eventually) -> None:
    # The launcher starts a moment after its server.
    eventually(lambda: cron.check(conn) == [], within_s=120)
    assert cron.install(conn) == []


def test_an_installation_over_an_existing_schema_names_migrate(stack: Stack, conn: Connection) -> None:
    into = ("exec", "--env", "PGUSER=postgres", "--env", "PGDATABASE=queue", stack.db)

    refusal = complaint(*into, "/usr/share/pgrouse/install-schema.sh")

    assert 'database "queue" has a schema "messages" already' in refusal
    assert "pgrouse migrate" in refusal


def test_an_insert_by_psql_is_processed_by_the_daemon(stack: Stack, conn: Connection, eventually: Eventually) -> None:
    stack.psql("""INSERT INTO messages.message (topic, payload) VALUES ('orders.created', '{"id": 7}')""")

    ended = "SELECT result, output ->> 'order' FROM messages.message_archive WHERE topic = 'orders.created'"
    assert eventually(lambda: stack.psql(ended), within_s=240) == "success|7"


def test_both_services_become_healthy(stack: Stack, eventually: Eventually) -> None:
    assert eventually(lambda: healthy(stack.db) and healthy(stack.daemon), within_s=240)


def test_the_daemon_has_no_privileges_on_its_host(stack: Stack) -> None:
    status = docker("exec", stack.daemon, "cat", "/proc/self/status")
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)

    assert fields["Uid"].split() == ["10001"] * 4
    assert int(fields["CapBnd"], 16) == 0
    assert fields["NoNewPrivs"] == "1"
    assert "Read-only file system" in complaint("exec", "--user", "0", stack.daemon, "touch", "/x")


def test_the_daemon_owns_nothing_in_the_database(conn: Connection) -> None:
    conn.execute("SET SESSION AUTHORIZATION pgrouse_worker")

    for statement in ("DELETE FROM messages.message", "SELECT messages.cancel('{1}')", "CREATE TABLE messages.x ()"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            conn.execute(statement.encode())


def test_the_logs_of_the_containers_have_no_password(stack: Stack) -> None:
    for container in (stack.db, stack.daemon):
        assert PASSWORD not in docker("logs", container)


def test_stopping_the_daemon_drains_it(stack: Stack, eventually: Eventually) -> None:
    eventually(lambda: healthy(stack.daemon), within_s=240)

    docker("stop", "--time", "120", stack.daemon)

    state = json.loads(docker("inspect", "--format", "{{json .State}}", stack.daemon))
    assert (state["ExitCode"], state["OOMKilled"]) == (0, False)
    assert stack.psql("SELECT count(*) FROM messages.message WHERE claim_id IS NOT NULL") == "0"


@pytest.fixture
def database(images: None, eventually: Eventually) -> Iterator[Callable[..., str]]:
    """Run a database container with these variables until it is ready, and return its name.

    It is called as `database(NAME=value, ...)`.
    """
    with ExitStack() as ends:

        def run(*settings: str, **variables: str) -> str:
            name = f"pgrouse-test-{token_hex(4)}"
            given = {"POSTGRES_HOST_AUTH_METHOD": "trust", **variables}
            flags = [word for key, value in given.items() for word in ("--env", f"{key}={value}")]
            in_memory = ("--tmpfs", "/var/lib/postgresql/data")
            docker("run", "--detach", "--name", name, *flags, *in_memory, "pgrouse-postgres", *settings)
            ends.callback(docker, "rm", "--force", "--volumes", name)
            eventually(lambda: ready(name), within_s=240)
            return name

        yield run


def ask(container: str, dbname: str, sql: str) -> str:
    return docker("exec", "--env", f"PGDATABASE={dbname}", container, "psql", "-U", "postgres", "-qAtc", sql).strip()


@pytest.mark.long
def test_the_database_may_have_any_name(database: Callable[..., str]) -> None:
    dbname = 'it\'s = a \\ "näme" of 50%'

    container = database(POSTGRES_DB=dbname)

    assert ask(container, dbname, "SHOW cron.database_name") == dbname
    assert ask(container, dbname, "SELECT count(*), min(database) FROM cron.job") == f"2|{dbname}"


@pytest.mark.long
def test_without_installation_the_database_has_only_pg_cron(database: Callable[..., str]) -> None:
    container = database("-c", "fsync=off", POSTGRES_DB="elsewhere", PGROUSE_INSTALL="off")

    assert ask(container, "elsewhere", "SELECT extname FROM pg_extension ORDER BY 1") == "pg_cron\nplpgsql"
    assert ask(container, "elsewhere", "SELECT to_regnamespace('messages') IS NULL") == "t"
    assert ask(container, "elsewhere", "SHOW fsync") == "off"


@pytest.mark.long
def test_the_password_of_the_daemon_may_be_in_a_file(database: Callable[..., str]) -> None:
    container = database(PGROUSE_WORKER_PASSWORD_FILE="/etc/hostname")

    password = "SELECT rolpassword LIKE 'SCRAM-SHA-256$%' FROM pg_authid WHERE rolname = 'pgrouse_worker'"
    assert ask(container, "postgres", password) == "t"
