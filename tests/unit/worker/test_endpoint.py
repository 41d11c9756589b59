"""The endpoint's server: no client can occupy its few threads and block probes."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from prometheus_client import CollectorRegistry

from pgrouse.metrics import endpoint
from pgrouse.metrics.endpoint import MAX_REQUESTS, MetricsServer
from pgrouse.worker.health import HealthProbe
from tests.server.deadline import eventually


@pytest.fixture
def probed(monkeypatch: pytest.MonkeyPatch) -> Iterator[MetricsServer]:
    """A server whose requests may take a third of a second."""
    monkeypatch.setattr(endpoint, "REQUEST_S", 0.3)
    with MetricsServer(
        ("127.0.0.1", 0), CollectorRegistry(), HealthProbe(liveness_timeout_s=30, heartbeat_grace_s=10)
    ) as probed:
        serving = threading.Thread(target=probed.serve_forever, args=(0.05,))
        serving.start()
        yield probed
        probed.shutdown()
        serving.join()


def is_answered(probed: MetricsServer) -> bool:
    asking = http.client.HTTPConnection(*probed.server_address[:2], timeout=60)  # type: ignore[misc]
    try:
        asking.request("GET", "/livez")
        return asking.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        asking.close()


def is_hung_up_on(wire: socket.socket) -> bool:
    """Send one more letter of a path, and return whether it was received."""
    try:
        wire.sendall(b"a")
        return not wire.recv(1000)
    except TimeoutError:
        return False
    except OSError:
        return True


def test_clients_that_send_slowly_are_disconnected_and_others_are_answered(probed: MetricsServer) -> None:
    with ExitStack() as ends:
        wires = [ends.enter_context(socket.create_connection(probed.server_address[:2])) for _ in range(MAX_REQUESTS)]
        for wire in wires:
            wire.settimeout(0.01)
            wire.sendall(b"GET /")

        eventually(lambda: {is_hung_up_on(wire) for wire in wires} == {True})

        eventually(lambda: is_answered(probed))


def test_a_failed_thread_start_frees_its_slot(probed: MetricsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as exhausted:
        exhausted.setattr(threading.Thread, "start", refuse)
        assert not any(is_answered(probed) for _ in range(MAX_REQUESTS + 1))

    eventually(lambda: is_answered(probed))
