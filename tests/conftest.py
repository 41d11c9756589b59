"""Fixtures of all tests: servers, databases, and what happens if one is missing."""

from __future__ import annotations

import atexit
import gc
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings

from pgrouse.devdb.scratch import Scratch
from tests import times
from tests.daemon.proxy import Proxy
from tests.daemon.receiver import Receiver
from tests.docs import named_tests
from tests.server import deadline, servers
from tests.server.postgres import Database, Postgres
from tests.server.servers import Missing, Servers
from tests.sql.queue import Listener, Queue

# Tests that run on all servers of `--pg`, and only on the first unless it names any.
ON_NAMED_SERVERS = {"sql", "schema", "cron"}
ALL = "all"
# Set where everything must be installed (.ci/run): a test that would be skipped fails.
NO_SKIP = os.environ.get("PGROUSE_TEST_NO_SKIP") == "1"

# The same examples in every run, without a time limit: a change is judged by its effect.
settings.register_profile(
    "pgrouse", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("pgrouse")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--pg",
        default=os.environ.get("PGROUSE_TEST_PG"),
        help="servers to run the tests of SQL on, by comma, as 15,17,18, or `all` (default: "
        "PGROUSE_TEST_PG, else the first of those "
        "that are installed or run in a container, and on the others only what is about the server)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Record times, and make the folder of the seeds if other processes run the tests."""
    if not hasattr(config, "workerinput") and (recorder := times.recorder()):
        config.pluginmanager.register(recorder)
    if getattr(config.option, "numprocesses", None):
        scratch = Scratch("test", in_memory=True)
        config.add_cleanup(scratch.remove)
        config.stash[SEEDS] = scratch.folder


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["seeds"] = str(node.config.stash[SEEDS])


def pytest_report_header(config: pytest.Config) -> list[str]:
    return [f"database {name}: {servers.describe(name)}" for name in _servers(config)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that proves nothing about the server on one of them, unless it is marked `every_server`."""
    if "server" not in metafunc.fixturenames or _chooses_its_own_servers(metafunc):
        return
    test, given = metafunc.definition, metafunc.config.getoption("--pg")
    names = _servers(metafunc.config)
    if test.get_closest_marker("newest") and given in (None, "", ALL):
        names = list(dict.fromkeys([*(names if given else names[:1]), servers.EMBEDDED]))
    elif not _is_about_the_server(test, ON_NAMED_SERVERS if given else set()):
        names = names[:1]
    metafunc.parametrize("server", names, indirect=True, scope="session")


def _is_about_the_server(test: pytest.Item, folders: set[str]) -> bool:
    marked = any(test.get_closest_marker(name) for name in ("every_server", "newest"))
    return marked or not folders.isdisjoint(test.nodeid.split("/"))


def pytest_xdist_auto_num_workers() -> int:
    """Run three processes per core for `-n auto`: most tests wait, for time or for a server.

    With its servers, each takes less than 1 GB.
    """
    gigabytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**30
    return max(1, min(3 * (os.cpu_count() or 1), gigabytes))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Read no file that shows no promise if `-m` asks for promises: to import them all takes a minute of CPU."""
    only_promises = str(config.option.markexpr).startswith("promise")
    is_test = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    shown = is_test and str(collection_path) in {path for path, _ in named_tests.promised()}
    return True if only_promises and is_test and not shown else None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    """Mark what shows a promise before `-m` chooses, then begin with the files that take long.

    What begins late would run alone at the end.
    """
    promised = named_tests.promised()
    for item in items:
        if (str(item.path), getattr(item, "originalname", item.name)) in promised:
            item.add_marker("promise")
    yield
    first = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in first)


def pytest_collection() -> None:
    """Collect without the collector of garbage: nothing becomes garbage, and to look for it takes two seconds."""
    gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the container's image before the first test: a slow download should not count against its time limit.

    The collector of garbage leaves out what exists by then, ten thousand tests and all that they import: to visit it
    again and again took 8 % of the CPU of the tests of SQL. It collects the rest at the end of the process: some
    modules report what is left of them then as leaked.
    """
    gc.freeze()
    gc.enable()
    atexit.register(gc.unfreeze)
    names = {item.callspec.params.get("server") for item in session.items if hasattr(item, "callspec")}
    if not session.config.option.collectonly and servers.CONTAINER in names:
        servers.prepare(servers.CONTAINER)


def _servers(config: pytest.Config) -> list[str]:
    chosen = config.getoption("--pg")
    if chosen and chosen != ALL:
        return chosen.split(",")
    if SERVERS not in config.stash:
        found = servers.available(all_of_them=NO_SKIP)
        config.stash[SERVERS] = list(dict.fromkeys([*found, servers.EMBEDDED])) if chosen else found
    return config.stash[SERVERS]


SERVERS = pytest.StashKey[list[str]]()
SEEDS = pytest.StashKey[Path]()


def _chooses_its_own_servers(metafunc: pytest.Metafunc) -> bool:
    return any("server" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and call.excinfo and not hasattr(report, "wasxfail"):
        # One location for all of them, so that the summary has one line for each missing thing and not one for each
        # test.
        report.longrepr = (__file__, 0, str(call.excinfo.value))
    if NO_SKIP and report.skipped and not hasattr(report, "wasxfail"):
        _fail_instead(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if NO_SKIP and report.skipped:
        _fail_instead(report)
    return report


def _fail_instead(report: pytest.TestReport | pytest.CollectReport) -> None:
    reason = report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr
    report.outcome = "failed"
    report.longrepr = f"not skipped, because PGROUSE_TEST_NO_SKIP is set: {reason}"


@pytest.fixture(scope="session")
def session_servers(request: pytest.FixtureRequest) -> Iterator[Servers]:
    """All servers of this session."""
    seeds = getattr(request.config, "workerinput", {}).get("seeds")
    with closing(Servers(seeds and Path(seeds))) as all_of_them:
        yield all_of_them


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest, session_servers: Servers) -> Postgres:
    """A running server; each test that uses it runs once on every one that `--pg` names."""
    try:
        return session_servers.server(request.param)
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests marked `container` without an engine.

    In a fixture it would be too late: those of a whole module are made before.
    """
    if item.get_closest_marker("container") and (reason := servers.why_no_containers()):
        pytest.skip(reason)


@pytest.fixture(autouse=True)
def _needs(request: pytest.FixtureRequest) -> None:
    """Skip tests marked `pg_cron` on a server without it."""
    if request.node.get_closest_marker("pg_cron") and request.getfixturevalue("server").pg_cron is None:
        pytest.skip(f"this server has no pg_cron; {servers.how_to_install(servers.LOCAL)}")


@pytest.fixture
def private_server(session_servers: Servers) -> Iterator[Postgres]:
    """A server that the test may stop, crash, kill and start, by its `place`."""
    try:
        with session_servers.private_server() as server:
            yield server
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def empty_database(server: Postgres) -> Iterator[Database]:
    """An empty database, dropped at the end."""
    with server.new_database() as database:
        yield database


@pytest.fixture
def database(server: Postgres) -> Iterator[Database]:
    """A database with the schema installed, dropped at the end."""
    with server.new_database(template=server.migrated) as database:
        yield database


@pytest.fixture(scope="module")
def shared(server: Postgres) -> Iterator[Database]:
    """A database with the schema installed, for all tests of a module."""
    with server.new_database(template=server.migrated) as database:
        yield database


@pytest.fixture
def db(database: Database) -> psycopg.Connection[Any]:
    """An autocommit connection to `database`."""
    return database.connect()


@pytest.fixture
def queue(db: psycopg.Connection[Any]) -> Queue:
    """The queue of `database`, through an autocommit connection of the superuser."""
    return Queue(db)


@pytest.fixture
def listen(database: Database) -> Callable[..., Listener]:
    """`listen("new_message")` returns a listener that receives what is sent from now on."""
    return lambda *channels: Listener(database.connect(), *channels)


@pytest.fixture
def proxy(database: Database) -> Iterator[Proxy]:
    """A connection to the database that can be cut, and that can lose an answer."""
    proxy = Proxy(database.dsn)
    yield proxy
    proxy.close()


@pytest.fixture(scope="module")
def served() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.stop()


@pytest.fixture
def receiver(served: Receiver) -> Receiver:
    """A server that accepts every request, and keeps it."""
    served.requests.clear()
    served.accept()
    return served


@pytest.fixture
def eventually() -> Callable[..., Any]:
    """`eventually(condition, within_s=60)` calls `condition` until it returns something true, and returns that."""
    return deadline.eventually
