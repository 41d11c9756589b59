"""Alerts are delivered at least once, in order, independently per sink, through every outage.

The processes and the receiver are real.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.preloaded import Forked
from tests.daemon.process import HANDLERS, PGROUSE
from tests.daemon.receiver import Receiver, Request, reserved
from tests.server.deadline import eventually
from tests.server.postgres import Database, Postgres
from tests.sql import sinks
from tests.sql.queue import Queue

RULES = {"group_wait": "0s", "group_interval": "1s"}


class Deliverer:
    """One `pgrouse alert run` (or another command) with its own configuration."""

    def __init__(self, folder: Path, dsn: str, sinks: list[dict[str, Any]], *command: str, **sections: Any) -> None:
        folder.mkdir()
        self.log = folder / "log"
        rules = RULES | sections.pop("alerts", {})
        tables = {"database": {"dsn": dsn}, "log": {"format": "json", "level": "debug"}, **sections, "alerts": rules}
        lines = [f"[{name}]\n{_keys(table)}" for name, table in tables.items()]
        lines += [f"[[alerts.to]]\n{_keys(sink)}" for sink in sinks]
        (folder / "pgrouse.toml").write_text("\n".join(lines))
        env = {**os.environ, "JOURNAL": str(folder / "journal"), "GATES": str(folder)}
        self.process = Forked(PGROUSE, *(command or ("alert", "run")), cwd=folder, env=env, log=self.log)

    def kill(self) -> None:
        """Kill it with -9."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(30)

    def stop(self) -> int:
        """Stop it with SIGTERM and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return its log events of this name."""
        # Only complete lines: the last one may be incomplete.
        written = self.log.read_text().rpartition("\n")[0]
        lines = [line for line in written.splitlines() if line.startswith("{")]
        return [event for line in lines if (event := json.loads(line))["event"] == name]


def _keys(table: dict[str, Any]) -> str:
    return "".join(f"{key} = {_value(value)}\n" for key, value in table.items())


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)} = {json.dumps(inner)}" for name, inner in value.items()) + "}"
    return json.dumps(value)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.stop()


@pytest.fixture
def deliver(database: Database, tmp_path: Path) -> Iterator[Callable[..., Deliverer]]:
    """`deliver({"name": "ops", "webhook": url})` starts a deliverer for these sinks."""
    started: list[Deliverer] = []

    def start(*sinks: dict[str, Any], command: tuple[str, ...] = (), **sections: Any) -> Deliverer:
        folder = tmp_path / f"deliverer-{len(started)}"
        started.append(Deliverer(folder, database.dsn, list(sinks), *command, **sections))
        return started[-1]

    yield start
    for each in started:
        each.kill()


def until_all_listen(queue: Queue, *sinks: str) -> None:
    """Wait until each sink is registered: a new one does not get alerts that another one has delivered already."""
    begun = "SELECT count(*) = %s FROM messages.alert_sink WHERE name = ANY (%s) AND position IS NOT NULL"
    eventually(lambda: queue.value(begun, [len(sinks), list(sinks)]))


def hook(receiver: Receiver, name: str = "ops", **settings: Any) -> dict[str, Any]:
    return {"name": name, "webhook": receiver.url(), "rate_limit_per_minute": 1000, **settings}


def raise_alert(queue: Queue, topic: str = "t") -> None:
    """Raise an alert as the database does: a row, and a notification for every listener."""
    with queue.conn.transaction():
        sinks.raise_alert(queue, topic)
        queue.conn.execute("SELECT pg_notify('dead_message', '')")


def topics(requests: list[Request]) -> list[str]:
    return [request.json["groups"][0]["topic"] for request in requests]


def delivered(queue: Queue) -> int:
    count: int = queue.value("SELECT count(delivered_at) FROM messages.alert_delivery")
    return count


def test_when_all_daemons_are_dead_two_web_servers_say_so_once(
    queue: Queue, receiver: Receiver, deliver: Callable[..., Deliverer]
) -> None:
    sections = {"handlers": {"import_path": [str(HANDLERS)]}, "worker": {"maintenance_interval": "0.2s"}}
    job = {"topics.job": {"handler": "work:act"}}
    daemons = [deliver(hook(receiver), command=("run",), **sections, **job) for _ in range(2)]
    web = {"web": {"listen": "127.0.0.1:0"}, "worker": sections["worker"]}
    servers = [deliver(hook(receiver), command=("web",), **web) for _ in range(2)]
    eventually(lambda: queue.value("SELECT count(*) = 2 FROM messages.worker_state WHERE alive"))
    until_all_listen(queue, "ops")
    eventually(lambda: all(server.events("web.started") for server in servers))
    first_ids = [row.name for row in queue.rows("SELECT name FROM messages.worker ORDER BY name")]

    for each in daemons:
        each.kill()
    queue.publish_many(3, "job", payload='{"do": "complete"}')
    # The worker's last sign of life is dated back, instead of waiting for half a minute.
    queue.conn.execute("UPDATE messages.worker SET seen_at = seen_at - interval '1 minute'")

    (request,) = receiver.wait_for(1)
    (group,) = request.json["groups"]
    assert (group["kind"], group["severity"], request.json["status"]) == ("workers_down", "page", "firing")
    assert all(f"{name} was last seen at " in request.json["title"] + request.json["body"] for name in first_ids)
    assert queue.value("SELECT held_by LIKE 'web:%%' FROM messages.alert_sink")

    queue.call("register_worker", "new", "host", 1, "1.0", ["job"], 1)
    _, over = receiver.wait_for(2)

    assert (over.json["status"], over.json["groups"][0]["kind"]) == ("resolved", "workers_down")
    ticks = "SELECT max(ran_at) FROM messages.tick_mark WHERE caller = 'web'"
    at = queue.value(ticks)
    eventually(lambda: queue.value(ticks) > at)
    assert len(receiver.requests) == 2


def test_an_outside_service_is_called_as_long_as_alerting_works(
    queue: Queue, receiver: Receiver, deliver: Callable[..., Deliverer]
) -> None:
    alerts = {"heartbeat": receiver.url("/beat"), "heartbeat_interval": "1s"}
    deliverer = deliver(hook(receiver), alerts=alerts)
    (missed,) = eventually(lambda: deliverer.events("alert.heartbeat_missed")[:1])
    assert missed["reason"] == "no maintenance has evaluated the conditions for 3 minutes"
    assert receiver.requests == []

    queue.rows("SELECT * FROM messages.tick()")

    assert {request.path for request in receiver.wait_for(2)} == {"/beat"}


def test_a_delivery_whose_daemon_is_killed_between_send_and_mark_is_repeated(
    queue: Queue, receiver: Receiver, deliver: Callable[..., Deliverer]
) -> None:
    receiver.gate.clear()
    raise_alert(queue, "first")
    first = deliver(hook(receiver))
    receiver.wait_for(1)
    raise_alert(queue, "second")

    first.kill()
    receiver.gate.set()
    deliver(hook(receiver))

    requests = receiver.wait_for(3)
    assert topics(requests) == ["first", "first", "second"]
    assert requests[0].id == requests[1].id != requests[2].id
    assert requests[0].body == requests[1].body
    eventually(lambda: delivered(queue) == 2)


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that refuses connections."""
    with reserved() as kept:
        yield int(kept.getsockname()[1])


def test_a_dead_sink_delays_no_other_and_no_secret_is_logged(
    queue: Queue, receiver: Receiver, deliver: Callable[..., Deliverer], closed_port: int
) -> None:
    unreachable = f"http://ann:unspeakable@127.0.0.1:{closed_port}/services/tokentoken?key=querysecret"
    receiver.answer = lambda request: (
        (503, {}, f"{request.headers.get('x-key')} is not welcome") if request.path == "/moody" else (204, {}, "")
    )
    moody = {**hook(receiver, "moody"), "webhook": receiver.url("/moody"), "headers": {"X-Key": "headersecret"}}
    given = [{"name": "dead", "webhook": unreachable, "secret": "signingsecret"}, moody, hook(receiver, "living")]
    chat = {"name": "chat", "url": unreachable.replace("http://", "json://")}
    process = deliver(*given, chat)
    until_all_listen(queue, "dead", "moody", "living", "chat")

    for topic in ("a", "b", "c"):
        raise_alert(queue, topic)
        eventually(lambda topic=topic: topic in topics([r for r in receiver.requests if r.path == "/hook"]))

    eventually(lambda: {event["sink"] for event in process.events("alert.failed")} == {"dead", "moody", "chat"})
    known = "SELECT name, last_error FROM messages.alert_sink WHERE failing_since IS NOT NULL ORDER BY name"
    failing = eventually(lambda: len(found := queue.rows(known)) == 3 and found)
    assert [row.name for row in failing] == ["chat", "dead", "moody"]
    assert process.stop() == 0
    output = process.log.read_text() + str(failing)
    for secret in ("unspeakable", "tokentoken", "querysecret", "signingsecret", "headersecret"):
        assert secret not in output


def test_a_delivery_in_flight_ends_before_a_stop_and_is_not_repeated(
    queue: Queue, receiver: Receiver, deliver: Callable[..., Deliverer]
) -> None:
    receiver.gate.clear()
    raise_alert(queue)
    process = deliver(hook(receiver))
    receiver.wait_for(1)

    process.process.send_signal(signal.SIGTERM)
    eventually(lambda: process.events("daemon.stopping"))
    receiver.gate.set()

    assert process.process.wait(60) == 0
    assert (delivered(queue), len(receiver.requests)) == (1, 1)


def test_an_alert_that_a_sink_keeps_refusing_is_abandoned_and_can_be_replayed(
    queue: Queue, receiver: Receiver, deliver: Callable[..., Deliverer]
) -> None:
    receiver.answer = lambda request: (400 if topics([request]) == ["bad"] else 204, {}, "")
    raise_alert(queue, "bad")
    process = deliver(hook(receiver))
    receiver.wait_for(1)
    eventually(lambda: queue.value("SELECT count(retry_at) FROM messages.alert_delivery"))
    # Nine refusals later, without waiting for them.
    queue.conn.execute("UPDATE messages.alert_delivery SET attempts = 9, retry_at = now()")
    raise_alert(queue, "good")

    eventually(lambda: delivered(queue) == 1)
    receiver.accept()
    assert queue.call("replay_alerts", "ops") == 2

    again = eventually(lambda: [r for r in receiver.requests if r.json["title"].startswith("[again] ")][1:2])
    refused, then = topics(receiver.requests)[:-3], topics(receiver.requests)[-3:]
    assert (set(refused), then) == ({"bad"}, ["good", "bad", "good"])
    assert again[0].json["replay_of"] in {request.id for request in receiver.requests}
    assert [event["level"] for event in process.events("alert.abandoned")] == ["error"]


@pytest.mark.slow
def test_delivery_survives_outages_of_the_database_and_of_the_sink(
    private_server: Postgres, receiver: Receiver, tmp_path: Path
) -> None:
    with private_server.new_database(template=private_server.migrated) as database:
        process = Deliverer(tmp_path / "deliverer", database.dsn, [hook(receiver)])
        raise_alert(Queue(database.connect()), "before")
        receiver.wait_for(1)
        receiver.go_away()
        raise_alert(Queue(database.connect()), "while the sink was away")
        eventually(lambda: process.events("alert.failed"))

        private_server.place.crash()
        eventually(lambda: process.events("loop.failed"))
        private_server.place.start()
        raise_alert(Queue(database.connect()), "after the crash")
        receiver.start_again()

        requests = receiver.wait_for(3, within_s=60)
        process.kill()
    assert topics(requests) == ["before", "while the sink was away", "after the crash"]


def test_a_message_names_the_exception_its_queue_and_the_page_of_the_dashboard(
    database: Database, queue: Queue, receiver: Receiver, deliver: Callable[..., Deliverer]
) -> None:
    deliver(hook(receiver), alerts={"environment": "staging"}, web={"url": "https://queue.example.com"})
    until_all_listen(queue, "ops")
    died = queue.publish()
    frame = '  File "/srv/shop/payments.py", line 12, in charge\n    client.post("/charges", json=order)\n'
    error = f"Traceback (most recent call last):\n{frame * 30}ConnectionError: could not connect to payments.internal\n"
    queue.settle("fail", queue.claim(), [error])

    (alert,) = receiver.wait_for(1)

    assert alert.json["title"] == (
        "[staging] 1 message failed in t: ConnectionError: could not connect to payments.internal"
    )
    assert alert.json["body"].endswith("ConnectionError: could not connect to payments.internal")
    assert alert.json["link"] == f"https://queue.example.com/messages/{died}"
    assert alert.json["runbook"] == "https://queue.example.com/runbooks#dead-messages"
    assert f"runbook: {alert.json['runbook']}" in alert.json["body"]
    assert (alert.json["environment"], alert.json["severity"]) == ("staging", "ticket")
    assert alert.json["database"] == queue.value("SELECT current_database()")


def test_a_flood_is_sent_as_a_few_alerts_with_the_exact_count(
    queue: Queue, receiver: Receiver, deliver: Callable[..., Deliverer]
) -> None:
    queue.publish_many(10_000)
    began = time.monotonic()
    deliver(hook(receiver))
    for _ in range(20):
        claimed = queue.claim(limit=500)
        queue.settle("fail", claimed, [f"ValueError: price {row.id} is bad" for row in claimed])

    eventually(lambda: sum(request.json["count"] for request in receiver.requests) >= 10_000, 60)
    assert sum(request.json["count"] for request in receiver.requests) == 10_000
    assert len(receiver.requests) <= time.monotonic() - began + 1, "one a second, and the first"


def taken_in(queue: Queue, sink: str, count: int) -> bool:
    return bool(
        queue.value("SELECT coalesce(sum(count), 0) = %s FROM messages.alert_incident WHERE sink = %s", [count, sink])
    )


def test_an_escalation_is_sent_after_its_delay_and_not_before(
    queue: Queue, receiver: Receiver, deliver: Callable[..., Deliverer]
) -> None:
    boss = hook(receiver, "boss", escalate_after="10m", group_interval="1h")
    deliver(hook(receiver), boss | {"webhook": receiver.url("/boss")})
    until_all_listen(queue, "ops", "boss")
    raise_alert(queue)
    receiver.wait_for(1)
    eventually(lambda: taken_in(queue, "boss", 1))

    # Ten minutes later, without waiting; in one transaction, or the first one alone may be sent between the two.
    with queue.conn.transaction():
        queue.conn.execute("UPDATE messages.alert_incident SET first_at = first_at - interval '10 minutes'")
        raise_alert(queue)

    (to_boss,) = eventually(lambda: [r for r in receiver.requests if r.path == "/boss"])
    assert receiver.requests[0].path == "/hook"
    assert (to_boss.json["count"], to_boss.json["groups"][0]["escalated"]) == (2, True)


def test_a_deliverer_frozen_during_a_send_repeats_nothing_when_it_resumes(
    queue: Queue, receiver: Receiver, deliver: Callable[..., Deliverer]
) -> None:
    receiver.gate.clear()
    raise_alert(queue, "first")
    frozen = deliver(hook(receiver))
    receiver.wait_for(1)
    frozen.process.send_signal(signal.SIGSTOP)
    try:
        deliver(hook(receiver))
        # The claim of the sink has expired.
        queue.conn.execute("UPDATE messages.alert_sink SET held_until = now()")
        receiver.gate.set()
        receiver.wait_for(2)
        raise_alert(queue, "second")
        eventually(lambda: delivered(queue) == 2)
    finally:
        frozen.process.send_signal(signal.SIGCONT)

    eventually(lambda: frozen.events("alert.lease_lost"))
    raise_alert(queue, "third")
    eventually(lambda: delivered(queue) == 3)
    assert topics(receiver.requests) == ["first", "first", "second", "third"]
    assert receiver.requests[0].id == receiver.requests[1].id, "the same message, by which the receiver knows it"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a certificate of a private authority, and one for localhost that it has signed."""
    folder = tmp_path_factory.mktemp("tls")
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    ca = ["-CA", "ca.pem", "-CAkey", "ca.key", "-addext", "subjectAltName=IP:127.0.0.1"]
    for name, more in (("ca", []), ("server", [*ca, "-addext", "basicConstraints=critical,CA:FALSE"])):
        names = ["-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}"]
        subprocess.run([*make, *names, *more], cwd=folder, check=True, capture_output=True)
    return folder


def test_a_webhook_over_tls_is_verified_against_its_own_authority_only(
    queue: Queue,
    receiver: Receiver,
    deliver: Callable[..., Deliverer],
    authority: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    receiver.speak_tls(authority / "server.pem", authority / "server.key")
    without_authority = deliver(hook(receiver))
    raise_alert(queue)
    (failed,) = eventually(lambda: without_authority.events("alert.failed")[:1])
    untrusted = list(receiver.requests)
    without_authority.stop()

    monkeypatch.setenv("SSL_CERT_FILE", str(authority / "ca.pem"))
    deliver(hook(receiver))

    (request,) = receiver.wait_for(1)
    assert "CERTIFICATE_VERIFY_FAILED" in failed["reason"]
    assert (untrusted, request.json["groups"][0]["topic"]) == ([], "t")


def test_a_proxy_of_the_environment_is_used_unless_the_host_is_excepted(
    queue: Queue, receiver: Receiver, deliver: Callable[..., Deliverer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", receiver.url(""))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    deliver({**hook(receiver), "webhook": "http://hooks.invalid/far"}, hook(receiver, "near"))
    until_all_listen(queue, "ops", "near")

    raise_alert(queue)

    assert {r.path for r in receiver.wait_for(2)} == {"http://hooks.invalid/far", "/hook"}
