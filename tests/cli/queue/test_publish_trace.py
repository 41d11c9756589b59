"""`pgrouse publish` within a traced shell: the message carries the context that the environment names."""

from __future__ import annotations

import pytest

from tests.cli.shell import Shell
from tests.sql.queue import Queue

PARENT = f"00-{'a' * 32}-{'b' * 16}-01"


@pytest.fixture(autouse=True)
def _traced_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEPARENT", PARENT)
    monkeypatch.setenv("TRACESTATE", "vendor=x")


def test_a_message_published_in_a_traced_shell_carries_its_context(pgrouse: Shell, queue: Queue) -> None:
    done = pgrouse("publish", "orders", "1", "--header", "tenant=acme", "--json")

    assert queue.message(done.object["id"]).headers == {
        "traceparent": PARENT,
        "tracestate": "vendor=x",
        "tenant": "acme",
    }


def test_a_context_in_the_headers_overrides_that_of_the_shell(pgrouse: Shell, queue: Queue) -> None:
    other = f"00-{'c' * 32}-{'d' * 16}-00"

    done = pgrouse("publish", "orders", "1", "--header", f"traceparent={other}", "--json")

    assert queue.message(done.object["id"]).headers == {"traceparent": other}
