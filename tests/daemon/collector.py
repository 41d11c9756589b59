"""An OTLP collector over HTTP that records what a daemon exports."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector:
    """What was received: spans and metrics of the protocol."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._bodies: dict[str, list[bytes]] = {"/v1/traces": [], "/v1/metrics": []}

    def take(self, path: str, body: bytes) -> None:
        """Record the body of one request."""
        self._bodies[path].append(body)

    def resources(self) -> list[dict[str, Any]]:
        """Return the attributes of the resources that sent spans."""
        return [attributes(each.resource) for each in self._traces()]

    def spans(self, name: str, **about: Any) -> list[Span]:
        """Return the spans of this name with these attributes (dots written as underscores)."""
        found = [span for each in self._traces() for scope in each.scope_spans for span in scope.spans]
        return [span for span in found if span.name == name and about.items() <= _underscored(span).items()]

    def span(self, name: str, **about: Any) -> Span:
        """Return the only such span."""
        (found,) = self.spans(name, **about)
        return found

    def metrics(self) -> dict[str, list[Any]]:
        """Return the data points that were sent so far, by metric."""
        found: dict[str, list[Any]] = {}
        for body in list(self._bodies["/v1/metrics"]):
            for each in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for metric in (metric for scope in each.scope_metrics for metric in scope.metrics):
                    kind = getattr(metric, metric.WhichOneof("data"))
                    found.setdefault(metric.name, []).extend(kind.data_points)
        return found

    def _traces(self) -> list[Any]:
        bodies = list(self._bodies["/v1/traces"])
        return [each for body in bodies for each in ExportTraceServiceRequest.FromString(body).resource_spans]


def attributes(thing: Any) -> dict[str, Any]:
    """Return the attributes of a span, a link, a resource or a point."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in thing.attributes}


def _underscored(span: Span) -> dict[str, Any]:
    return {name.replace(".", "_"): value for name, value in attributes(span).items()}


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run a collector on its own port."""

    class Requests(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.take(self.path, gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body)
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Requests)
    server.daemon_threads = True
    collector = Collector(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=[0.05])
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
