"""/metrics, /livez and /readyz of real daemons, healthy and unhealthy."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from psycopg import AsyncConnection
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from pgrouse.metrics import catalogue, queue_metrics
from pgrouse.metrics.catalogue import MetricKind
from tests.daemon.endpoint import ANY_PORT, Endpoint, named, series
from tests.daemon.process import Daemon, Fleet, Journal, until_armed
from tests.daemon.proxy import Proxy
from tests.daemon.receiver import reserved
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue

Start = Callable[..., Daemon]

DEPLOY = Path(__file__).parents[3] / "deploy"
PROMTOOL = shutil.which("promtool")
SERIES = {MetricKind.COUNTER: ("",), MetricKind.GAUGE: ("",), MetricKind.HISTOGRAM: ("_bucket", "_count", "_sum")}


def fleet_of(database: Database) -> str:
    """The metrics that the web server would export."""

    async def read() -> str:
        async with await AsyncConnection.connect(database.dsn, row_factory=dict_row) as conn:
            return queue_metrics.render(await queue_metrics.read_queue_metrics(conn), "")[0].decode()

    return asyncio.run(read())


@pytest.mark.long
def test_a_working_daemon_serves_metrics_that_prometheus_accepts(
    start: Start, queue: Queue, journal: Journal, database: Database
) -> None:
    daemon = start({"job": "work:act", "idle": "work:echo"}, sections=ANY_PORT)
    endpoint = Endpoint(daemon)
    published = []

    def one_was_notified() -> bool:
        # Some messages do not arrive during a sleep: the daemon may be armed and not asleep yet.
        published.append(queue.publish("job", payload=Jsonb({"do": "return"})))
        eventually(lambda: queue.ids() == [])
        until_armed(queue.conn, daemon)
        return endpoint.value("pgrouse_claimed_messages_total", source="notify") >= 1

    eventually(one_was_notified, every_s=0.2)
    queue.publish("job", payload=Jsonb({"do": "reject"}))
    eventually(lambda: endpoint.value("pgrouse_messages_total", topic="job", result="rejected") == 1)
    eventually(lambda: endpoint.value("pgrouse_claims_total", source="busy") > 0)

    assert endpoint.value("pgrouse_messages_total", topic="job", result="success") == len(published)
    assert endpoint.value("pgrouse_messages_total", topic="idle", result="success") == 0
    assert endpoint.value("pgrouse_handler_duration_seconds_count", topic="job") == len(published) + 1
    assert endpoint.value("pgrouse_queue_wait_seconds_bucket", topic="job", le="+Inf") == len(published) + 1
    assert endpoint.value("pgrouse_wake_seconds_count") >= 1
    assert endpoint.value("pgrouse_claimed_messages_total", source="notify") >= 1
    assert endpoint.value("pgrouse_listener_connected") == 1
    eventually(lambda: endpoint.value("pgrouse_in_flight") == 0)
    assert (endpoint.status("/livez"), endpoint.status("/readyz")) == (200, 200)
    text = endpoint.metrics()
    exported = {line.split("{")[0].split(" ")[0] for line in text.splitlines() if line.startswith("pgrouse_")}
    assert exported == {each.name + suffix for each in catalogue.DAEMON for suffix in SERIES[each.kind]}
    if PROMTOOL is not None:
        checked = subprocess.run(
            [PROMTOOL, "check", "metrics"], input=text, text=True, capture_output=True, check=False
        )
        assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")

    exposed = series(text) | series(fleet_of(database))
    asked = {
        file: named(file.read_text()) - exposed
        for file in (DEPLOY / "prometheus/alerts.yaml", DEPLOY / "grafana/pgrouse.json")
    }
    assert not any(asked.values()), f"rules or panels ask for unknown metrics: {asked}"

    head, body = endpoint.ask("/metrics", "HEAD")
    assert (head.status, body, int(head.headers["Content-Length"]) > 1000) == (200, "", True)
    refused, _ = endpoint.ask("/metrics", "POST")
    assert (refused.status, refused.headers["Allow"]) == (405, "GET, HEAD")
    assert endpoint.status("/") == 404


@pytest.mark.long
def test_livez_fails_while_a_handler_blocks_the_event_loop(start: Start, queue: Queue, journal: Journal) -> None:
    sections = {"metrics": {"listen": "127.0.0.1:0", "liveness_timeout": "1s"}}
    daemon = start({"job": "hostile:block_until_gate"}, sections=sections)
    endpoint = Endpoint(daemon)
    eventually(lambda: endpoint.status("/livez") == 200)

    queue.publish("job")
    journal.entry("start")

    eventually(lambda: endpoint.failed("/livez") == {"event_loop"})
    assert endpoint.failed("/readyz") == {"event_loop"}
    assert endpoint.value("pgrouse_event_loop_lag_seconds") >= 1
    daemon.open_gate()
    eventually(lambda: endpoint.failed("/livez") == set())


def test_a_draining_daemon_is_live_and_not_ready(start: Start, queue: Queue, journal: Journal) -> None:
    daemon = start({"job": "holding:hold"}, sections=ANY_PORT, shutdown_timeout="30s")
    endpoint = Endpoint(daemon)
    queue.publish("job")
    journal.entry("start")
    assert endpoint.value("pgrouse_handlers_running") == 1

    daemon.send(signal.SIGTERM)

    eventually(lambda: endpoint.failed("/readyz") == {"draining"})
    assert endpoint.status("/livez") == 200
    assert endpoint.value("pgrouse_draining") == 1
    daemon.open_gate()
    assert daemon.exit_code() == 0


def test_a_daemon_without_a_listener_or_a_database_is_live_and_not_ready(
    fleet: Fleet, proxy: Proxy, queue: Queue, journal: Journal
) -> None:
    nowhere = "host=127.0.0.1 port=1 dbname=none"
    daemon = fleet.launch({"job": "holding:hold"}, dsn=proxy.dsn, database={"listen_dsn": nowhere}, sections=ANY_PORT)
    endpoint = Endpoint(daemon)
    # A short lock makes its heartbeat check often.
    queue.policy("job", lock_duration="3 s")
    queue.publish("job")
    journal.entry("start")

    eventually(lambda: endpoint.failed("/readyz") == {"listener"})
    assert endpoint.value("pgrouse_listener_connected") == 0

    proxy.hang_up()

    eventually(lambda: "database" in endpoint.failed("/readyz"))
    assert endpoint.failed("/livez") == set()


def test_a_daemon_that_waits_for_its_database_is_live_and_not_ready(fleet: Fleet, queue: Queue) -> None:
    endpoint = Endpoint(fleet.launch({"job": "work:echo"}, dsn="host=127.0.0.1 port=1 dbname=none", sections=ANY_PORT))

    assert endpoint.failed("/readyz") == {"database"}
    assert endpoint.failed("/livez") == set()
    assert endpoint.value("pgrouse_listener_connected") == 0


@pytest.fixture
def two_ports() -> Iterator[int]:
    """The first of two consecutive ports that are reserved for this test."""
    while True:
        with reserved() as first, suppress(OSError):
            port = int(first.getsockname()[1])
            with reserved(port + 1):
                yield port
                return


@pytest.mark.long
def test_each_process_has_the_port_after_that_of_the_process_before(
    fleet: Fleet, database: Database, queue: Queue, two_ports: int
) -> None:
    sections = {"metrics": {"listen": f"127.0.0.1:{two_ports}"}}
    daemon = fleet.launch({"job": "work:echo"}, dsn=database.dsn, sections=sections, processes=2)

    def workers() -> set[str]:
        return {
            line
            for port in (two_ports, two_ports + 1)
            for line in Endpoint(daemon, port).metrics().splitlines()
            if line.startswith("pgrouse_build_info")
        }

    eventually(lambda: len(daemon.events("metrics.listening")) == 2)
    assert len(workers()) == 2


def test_a_port_in_use_does_not_stop_the_work(start: Start, queue: Queue, journal: Journal) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        daemon = start({"job": "work:echo"}, sections={"metrics": {"listen": f"127.0.0.1:{port}"}})

        assert daemon.event("metrics.unavailable")["listen"] == f"127.0.0.1:{port}"
        assert journal.entry("start", queue.publish("job"))
