"""A client of the HTTP endpoint of a daemon."""

from __future__ import annotations

import json
import re
from http.client import HTTPConnection, HTTPResponse
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.daemon.process import Daemon

ANY_PORT = {"metrics": {"listen": "127.0.0.1:0"}}


class Endpoint:
    """Requests to one process."""

    def __init__(self, daemon: Daemon, port: int | None = None) -> None:
        self.daemon = daemon
        self.port = port or int(daemon.event("metrics.listening")["listen"].rpartition(":")[2])

    def ask(self, path: str, method: str = "GET") -> tuple[HTTPResponse, str]:
        """Return the answer and its body."""
        conn = HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            conn.request(method, path)
            answer = conn.getresponse()
            return answer, answer.read().decode()
        finally:
            conn.close()

    def status(self, path: str) -> int:
        """Return the status of an answer."""
        return self.ask(path)[0].status

    def failed(self, path: str) -> set[str]:
        """Return the reasons that a probe gives."""
        answer, body = self.ask(f"{path}?complete")
        report = json.loads(body)
        assert (answer.status == 200) == report["ok"]
        return {check["name"] for check in report["checks"] if not check["ok"]}

    def metrics(self) -> str:
        """Return the metrics as Prometheus gets them."""
        return self.ask("/metrics")[1]

    def value(self, name: str, **labels: Any) -> float:
        """Return the value of one series."""
        return values(self.metrics())[name, frozenset(labels.items())]


def values(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return every series of an exposition with its value."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def series(text: str) -> set[str]:
    """Return the names of all series of an exposition, including those without a value."""
    suffixes = {"histogram": ("_bucket", "_count", "_sum")}
    return {
        name + suffix
        for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE)
        for suffix in suffixes.get(kind, ("",))
    }


def named(expression: str) -> set[str]:
    """Return the metrics that an expression of PromQL names."""
    return set(re.findall(r"\b(?:pgrouse_[a-z]+|process)_\w+", expression))
