"""The telemetry of a real daemon: spans from the publisher to the handler, and the cost of a dead collector."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from pgrouse import NewMessage, publish, publish_many
from pgrouse.config.config import OtelSettings
from pgrouse.errors import ConfigError
from pgrouse.telemetry import providers
from tests.daemon.collector import Collector, attributes, collecting
from tests.daemon.process import Daemon, Fleet
from tests.server.deadline import eventually
from tests.server.postgres import Postgres
from tests.sql.queue import Queue
from tests.tracing import tracing

ENABLED = {
    "PGROUSE_OTEL__ENABLED": "true",
    "PGROUSE_OTEL__FLUSH_TIMEOUT": "60s",
    # Longer than any test: whatever arrives was flushed at the end.
    "OTEL_BSP_SCHEDULE_DELAY": "60000",
    "OTEL_METRIC_EXPORT_INTERVAL": "60000",
    "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
}
TOPICS = {
    "loop": "spans:record",
    "thread": "spans:record_in_thread",
    "process": {"handler": "spans:record_in_process", "isolation": "process", "concurrency": 1},
    "batch": {"handler": "spans:record_batch", "batch_size": 10},
    "passing": "spans:pass_on",
    "broken": "spans:break_",
    "slow": "spans:linger",
}
MODES = ["loop", "thread", "process", "batch"]


@dataclass
class Worked:
    """What was published, by whom, and its result."""

    collector: Collector
    daemon: Daemon
    ids: dict[str, int]
    sent: dict[str, str]
    """By topic the traceparent that its message carries."""

    def process(self, topic: str) -> Span:
        return self.collector.span(f"process {topic}")


@pytest.fixture(scope="module")
def worked(server: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worked]:
    """One daemon has processed one message for each of its topics (three for the batch).

    Then the daemon was stopped.
    """
    folder = tmp_path_factory.mktemp("fleet")
    with collecting() as collector, server.new_database(template=server.migrated) as database:
        fleet = Fleet(folder)
        try:
            conn = database.connect()
            queue = Queue(conn)
            queue.policy("slow", timeout="0.2 s")
            environ = {**ENABLED, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.address}
            daemon = fleet.start(conn, TOPICS, dsn=database.dsn, environ=environ)
            ids = _publish(conn)
            rows = queue.rows(
                "SELECT topic, headers FROM messages.message UNION SELECT topic, headers FROM messages.message_archive"
            )
            eventually(lambda: _topics(queue) == ["onward"], within_s=60)
            (onward,) = queue.ids()
            rows.append(queue.message(onward))
            assert daemon.stop() == 0
            yield Worked(collector, daemon, ids, {row.topic: row.headers["traceparent"] for row in rows})
        finally:
            fleet.kill()


def _publish(conn: psycopg.Connection[Any]) -> dict[str, int]:
    with tracing() as telemetry, telemetry.tracer.start_as_current_span("request"):
        ids = {topic: int(publish(conn, topic, 1)) for topic in TOPICS if topic != "batch"}
        publish_many(conn, [NewMessage(topic="batch", payload=n) for n in range(3)])
    return ids


def _topics(queue: Queue) -> list[str]:
    return [row.topic for row in queue.rows("SELECT topic FROM messages.message")]


def link(span: Span) -> str:
    """The context of a span's first link."""
    return f"00-{span.links[0].trace_id.hex()}-{span.links[0].span_id.hex()}"


@pytest.mark.parametrize("topic", TOPICS)
def test_the_span_of_a_handler_is_linked_to_the_span_that_sent_its_message(worked: Worked, topic: str) -> None:
    span = worked.process(topic)

    assert worked.sent[topic].startswith(link(span))
    assert span.kind == Span.SPAN_KIND_CONSUMER
    assert not span.parent_span_id


@pytest.mark.parametrize("topic", MODES)
def test_the_handler_sees_its_span_as_the_current_one(worked: Worked, topic: str) -> None:
    span = worked.process(topic)

    (entry,) = [e for e in worked.daemon.journal.entries("span") if e["span_id"] == span.span_id.hex()]
    assert entry["trace_id"] == span.trace_id.hex()


@pytest.mark.parametrize("topic", MODES)
def test_spans_that_a_handler_makes_are_children_of_its_span(worked: Worked, topic: str) -> None:
    span = worked.process(topic)

    assert span.span_id in {inner.parent_span_id for inner in worked.collector.spans("inner")}


@pytest.mark.parametrize("topic", ["loop", "thread"])
def test_logs_of_a_handler_name_its_span(worked: Worked, topic: str) -> None:
    span = worked.process(topic)

    logged = worked.daemon.event("handler.said", topic=topic)

    assert (logged["trace_id"], logged["span_id"]) == (span.trace_id.hex(), span.span_id.hex())


@pytest.mark.parametrize(("topic", "event"), [("broken", "attempt.failed"), ("batch", "message.rejected")])
def test_the_event_of_an_attempt_that_failed_names_its_span(worked: Worked, topic: str, event: str) -> None:
    span = worked.process(topic)

    assert worked.daemon.event(event, topic=topic)["span_id"] == span.span_id.hex()


def test_a_message_that_a_handler_publishes_continues_its_trace(worked: Worked) -> None:
    sent = worked.collector.span("send onward")

    assert sent.parent_span_id == worked.process("passing").span_id
    assert worked.sent["onward"].startswith(f"00-{sent.trace_id.hex()}-{sent.span_id.hex()}")


def test_a_span_describes_the_message_by_the_names_of_the_conventions(worked: Worked) -> None:
    about = attributes(worked.process("loop"))

    assert about.pop("messaging.client.id").startswith("d:")
    assert about == {
        "messaging.system": "pgrouse",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "loop",
        "messaging.message.id": str(worked.ids["loop"]),
        "messaging.pgrouse.message.attempt": 1,
        "messaging.pgrouse.outcome": "complete",
    }


def test_a_batch_is_one_span_with_a_link_for_each_message(worked: Worked) -> None:
    span = worked.process("batch")

    assert attributes(span)["messaging.batch.message_count"] == len(span.links) == 3
    assert attributes(span)["messaging.pgrouse.outcome"] == "mixed"
    assert attributes(span)["error.type"] == "rejected"


def test_a_handler_that_raises_leaves_a_failed_span_with_the_class_of_its_error(worked: Worked) -> None:
    span = worked.process("broken")

    assert attributes(span)["error.type"] == "LookupError"
    assert span.status.code == Status.STATUS_CODE_ERROR
    assert span.status.message == "LookupError: there is no such order"


def test_a_handler_that_exceeds_its_timeout_leaves_a_timed_out_span(worked: Worked) -> None:
    assert attributes(worked.process("slow"))["error.type"] == "timeout"


@pytest.mark.parametrize("operation", ["receive", "settle"])
def test_claims_and_settles_are_spans_with_links_to_the_senders(worked: Worked, operation: str) -> None:
    # A span that also concerns other topics names none of them.
    spans = [*worked.collector.spans(operation), *worked.collector.spans(f"{operation} thread")]

    span = next(
        each for each in spans if worked.process("thread").links[0].span_id in {one.span_id for one in each.links}
    )

    assert span.kind == Span.SPAN_KIND_CLIENT
    assert attributes(span)["messaging.operation.type"] == operation
    assert attributes(span)["server.port"] > 0


def test_the_metrics_of_the_conventions_are_exported(worked: Worked) -> None:
    metrics = worked.collector.metrics()

    consumed = {
        attributes(p)["messaging.destination.name"]: p.as_int for p in metrics["messaging.client.consumed.messages"]
    }
    assert consumed == dict.fromkeys(TOPICS, 1) | {"batch": 3}
    errors = {attributes(p).get("error.type") for p in metrics["messaging.process.duration"]}
    assert errors == {None, "LookupError", "timeout", "rejected"}
    operations = {attributes(p)["messaging.operation.name"] for p in metrics["messaging.client.operation.duration"]}
    assert operations == {"send", "receive", "settle"}


def test_the_environment_names_the_resource_and_the_worker_is_its_instance(worked: Worked) -> None:
    about = next(each for each in worked.collector.resources() if each["service.instance.id"].startswith("d:"))
    assert about["service.name"] == "pgrouse"
    assert about["deployment.environment.name"] == "test"


@pytest.fixture
def silent_collector() -> Iterator[str]:
    """A collector that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.long
def test_a_collector_that_never_answers_delays_neither_messages_nor_the_stop(
    start: Callable[..., Daemon], queue: Queue, silent_collector: str, eventually: Callable[..., Any]
) -> None:
    never = {"OTEL_EXPORTER_OTLP_TIMEOUT": "3600"}
    environ = {
        **ENABLED,
        **never,
        "OTEL_EXPORTER_OTLP_ENDPOINT": silent_collector,
        "PGROUSE_OTEL__FLUSH_TIMEOUT": "500ms",
    }
    daemon = start({"loop": "work:echo"}, environ=environ)
    queue.publish_many(3000, "loop")
    eventually(lambda: not queue.ids())

    assert daemon.stop(within_s=30) == 0
    assert daemon.event("daemon.stopped")["complete"] == 3000


@pytest.mark.parametrize(
    ("variable", "value", "fix"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "it must be http/protobuf"),
        ("OTEL_TRACES_EXPORTER", "zipkin", "it must be otlp or none"),
    ],
)
def test_a_missing_exporter_is_a_configuration_error(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, fix: str
) -> None:
    monkeypatch.setenv(variable, value)

    with pytest.raises(ConfigError, match=f"{variable}={value} cannot be used: {fix}"):
        providers.set_providers(OtelSettings(enabled=True), "me")
