"""Publishing within a trace: the context is in the headers, and nothing is imported or added without tracing."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from opentelemetry import trace
from opentelemetry.trace import StatusCode, TraceState

from pgrouse import InvalidMessage, NewMessage, publish, publish_many
from pgrouse.telemetry import trace_context
from tests.server.postgres import Database
from tests.tracing import Telemetry, traceparent, tracing

Conn = psycopg.Connection[Any]


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    with tracing() as telemetry:
        yield telemetry


def headers(conn: Conn, message_id: int) -> dict[str, Any] | None:
    row = conn.execute("SELECT headers FROM messages.message WHERE id = %s", [message_id]).fetchone()
    assert row is not None
    found: dict[str, Any] | None = row[0]
    return found


def test_a_message_carries_the_context_of_the_span_that_sent_it(db: Conn, telemetry: Telemetry) -> None:
    with telemetry.tracer.start_as_current_span("caller") as caller:
        published = publish(db, "orders", 1)

    sent = telemetry.span("send orders")
    assert headers(db, published) == {"traceparent": traceparent(sent)}
    assert sent.parent == caller.get_span_context()
    assert sent.kind is trace.SpanKind.PRODUCER
    assert {
        "messaging.system": "pgrouse",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.message.id": str(int(published)),
        "server.port": db.info.port,
    }.items() <= dict(sent.attributes or {}).items()


def test_the_context_and_its_tracestate_are_added_to_the_headers_of_the_publisher(
    db: Conn, telemetry: Telemetry
) -> None:
    state = TraceState([("vendor", "x")])
    context = trace.SpanContext(1, 2, is_remote=True, trace_flags=trace.TraceFlags(1), trace_state=state)
    with trace.use_span(trace.NonRecordingSpan(context)):
        published = publish(db, "orders", 1, headers={"tenant": "ä", "nested": {"a": [1]}})

    found = headers(db, published)
    assert found is not None
    assert found.pop("traceparent") == traceparent(telemetry.span("send orders"))
    assert found == {"tenant": "ä", "nested": {"a": [1]}, "tracestate": "vendor=x"}


def test_a_context_of_the_publisher_is_not_replaced(db: Conn, telemetry: Telemetry) -> None:
    mine = f"00-{'a' * 32}-{'b' * 16}-01"

    published = publish(db, "orders", 1, headers={"traceparent": mine})

    assert headers(db, published) == {"traceparent": mine}


def test_headers_that_are_too_large_get_no_context(db: Conn, telemetry: Telemetry) -> None:
    large = {"blob": "x" * 65_000}

    published = publish(db, "orders", 1, headers=large)

    assert headers(db, published) == large


def test_an_async_publish_carries_the_context_of_its_caller(database: Database, db: Conn, telemetry: Telemetry) -> None:
    async def send() -> int:
        async with await psycopg.AsyncConnection.connect(database.dsn, autocommit=True) as conn:
            with telemetry.tracer.start_as_current_span("caller"):
                return await publish(conn, "orders", 1)

    published = asyncio.run(send())

    sent = telemetry.span("send orders")
    assert headers(db, published) == {"traceparent": traceparent(sent)}
    assert sent.parent is not None
    assert sent.parent.span_id == telemetry.span("caller").get_span_context().span_id


def test_all_messages_of_a_bulk_publish_carry_the_context_of_its_span(db: Conn, telemetry: Telemetry) -> None:
    many = publish_many(db, [NewMessage(topic="orders", payload=n, headers={"n": n}) for n in range(3)])

    sent = telemetry.span("send orders")
    rows = db.execute("SELECT headers FROM messages.message ORDER BY id").fetchall()
    assert [found for (found,) in rows] == [{"traceparent": traceparent(sent), "n": n} for n in range(3)]
    assert (sent.attributes or {})["messaging.batch.message_count"] == many == 3


def test_a_bulk_publish_to_several_topics_names_none_also_on_async_connections(
    database: Database, telemetry: Telemetry
) -> None:
    async def send() -> None:
        async with await psycopg.AsyncConnection.connect(database.dsn, autocommit=True) as conn:
            await publish_many(conn, [NewMessage(topic="orders"), NewMessage(topic="mails")])

    asyncio.run(send())

    assert "messaging.destination.name" not in (telemetry.span("send").attributes or {})


def test_a_refused_publish_is_a_failed_span(db: Conn, telemetry: Telemetry) -> None:
    publish(db, "orders", 1, key="k")

    with pytest.raises(Exception, match="key"):
        publish(db, "orders", 1, key="k")

    _, refused = telemetry.spans("send orders")
    assert refused.status.status_code is StatusCode.ERROR
    assert (refused.attributes or {})["error.type"] == "KeyTaken"


def test_a_publish_that_was_not_sent_has_no_span(db: Conn, telemetry: Telemetry) -> None:
    with pytest.raises(InvalidMessage):
        publish(db, "no topic", 1)

    assert telemetry.spans("send no topic") == []


def test_published_messages_and_durations_are_measured(db: Conn, telemetry: Telemetry) -> None:
    publish(db, "orders", 1)
    publish_many(db, [NewMessage(topic="orders")] * 4)

    (sent,) = telemetry.points("messaging.client.sent.messages")
    (took,) = telemetry.points("messaging.client.operation.duration")
    assert sent.value == 5
    assert took.count == 2
    assert dict(sent.attributes)["messaging.destination.name"] == "orders"


def test_the_current_span_is_propagated_without_a_provider(db: Conn) -> None:
    context = trace.SpanContext(1, 2, is_remote=False, trace_flags=trace.TraceFlags(1))
    with trace.use_span(trace.NonRecordingSpan(context)):
        published = publish(db, "orders", 1)

    assert headers(db, published) == {"traceparent": f"00-{1:032x}-{2:016x}-01"}


def test_nothing_is_added_without_a_span(db: Conn) -> None:
    assert headers(db, publish(db, "orders", 1)) is None


def test_publishing_does_not_import_opentelemetry(database: Database) -> None:
    program = (
        "import sys, psycopg, pgrouse\n"
        "with psycopg.connect(sys.argv[1]) as conn:\n"
        "    pgrouse.publish(conn, 't', 1); pgrouse.publish_many(conn, [pgrouse.NewMessage(topic='t')])\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )

    done = subprocess.run([sys.executable, "-c", program, database.dsn], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("setup", "traces"),
    [
        ("", False),
        ("import opentelemetry.metrics", False),
        ("from opentelemetry.sdk.trace import TracerProvider; trace.set_tracer_provider(TracerProvider())", True),
        (
            "from opentelemetry import metrics; from opentelemetry.sdk.metrics import MeterProvider; "
            "metrics.set_meter_provider(MeterProvider())",
            True,
        ),
    ],
)
def test_a_publish_is_traced_only_if_the_application_uses_opentelemetry(setup: str, traces: bool) -> None:
    program = (
        f"from opentelemetry import trace; {setup}\n"
        "from pgrouse.telemetry.trace_context import NO_TRACE, start_publish_span\n"
        "print(start_publish_span(object(), 't') is not NO_TRACE)"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == f"{traces}\n"


@pytest.mark.parametrize("parent", ["", "00-zz", f"00-{'0' * 32}-{'b' * 16}-01", f"00-{'a' * 32}-{'b' * 16}-01-x"])
def test_an_environment_without_a_valid_traceparent_names_no_context(parent: str) -> None:
    assert trace_context.from_environment({"TRACEPARENT": parent, "TRACESTATE": "a=b"}) == {}


def test_an_opentelemetry_that_is_too_old_does_not_prevent_a_publish(
    db: Conn, telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(_provider: object, name: str, unit: str, description: str) -> None:
        """Accepts fewer arguments than today."""

    monkeypatch.setattr("opentelemetry.sdk.metrics.Meter.create_histogram", make)

    published = publish(db, "orders", 1)

    assert headers(db, published) is None
