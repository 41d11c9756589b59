"""The problems that the description names for each operation.

Each is provoked, and exactly the operations that name it give it.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest

from pgrouse.web.access import security
from pgrouse.web.http.problem import database_problem
from tests.api.described import description
from tests.api.site import Site
from tests.server.postgres import Database
from tests.sql.queue import Queue

# The values of required parameters.
VALUES = {
    "topic": "no.such.topic",
    "subscriber": "no.such.subscriber",
    "message_id": "999999999",
    "batch_id": "999999999",
    "silence_id": "999999999",
    "name": "no-such-schedule",
    "task": "purge",
}
# What publishers may do; they may do nothing else.
OF_PUBLISHERS = {
    *("publish_message", "publish_messages", "publish_payload"),
    *("create_batch", "close_batch", "signal_message", "signal_key", "make_signal_url"),
}
JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Operation:
    """An operation, as the description has it.

    Attributes:
        example: of its body; None if it has none.
    """

    id: str
    method: str
    path: str
    statuses: frozenset[int]
    example: Any
    is_parameterized: bool
    headers: dict[str, str] = field(default_factory=dict, hash=False)

    @property
    def request(self) -> tuple[str, str]:
        return self.method, re.sub(r"\{(\w+)\}", lambda found: VALUES[found[1]], self.path)

    def send(self, client: httpx.Client, **more: Any) -> httpx.Response:
        """Send its example."""
        content = None if self.example is None else json.dumps(self.example).encode()
        return client.request(*self.request, **{"content": content, "headers": JSON, **more})


def example_of(body: dict[str, Any]) -> Any:
    """Return the example of the JSON body of an operation."""
    content = body["content"]["application/json"]
    if "example" in content:
        return content["example"]
    name = content["schema"]["$ref"].rsplit("/", 1)[1]
    schema = description()["components"]["schemas"][name]
    while "$ref" in schema:
        schema = description()["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    return schema["examples"][0]


@cache
def operations() -> list[Operation]:
    """Return all operations; the description takes a second, so that nothing needs it when tests are collected."""
    return list(_operations())


def _operations() -> Iterator[Operation]:
    for path, methods in description()["paths"].items():
        for method, found in methods.items():
            statuses = frozenset(int(status) for status in found["responses"] if int(status) >= 400)
            example = example_of(found["requestBody"]) if "requestBody" in found else None
            if isinstance(example, dict) and "wait" in example:
                example = {**example, "wait": 0}  # and not 20 s for a message that will not come
            yield Operation(
                found["operationId"], method.upper(), path, statuses, example, bool(found.get("parameters"))
            )


@pytest.fixture(scope="module")
def small(site_database: Database) -> Iterator[Site]:
    """A server that reads short bodies only."""
    site = Site(site_database, max_body_bytes=1024)
    yield site
    site.stop()


def with_status(status: int, provoke: Callable[[Operation], httpx.Response | int], at_once: int = 8) -> None:
    """Provoke a status of every operation, some at once: those that name it answer it, and no other does."""

    def answered(operation: Operation) -> int:
        answer = provoke(operation)
        return answer if isinstance(answer, int) else answer.status_code

    with ThreadPoolExecutor(at_once) as pool:
        answers = dict(zip((each.id for each in operations()), pool.map(answered, operations()), strict=True))

    named = {each.id for each in operations() if status in each.statuses}
    assert {name for name, found in answers.items() if found == status} == named
    assert named != set()


def test_a_header_that_occurs_twice(http: httpx.Client) -> None:
    with_status(400, lambda each: each.send(http, headers=[*JSON.items(), *[("Idempotency-Key", "a")] * 2]))


def test_no_token(site: Site) -> None:
    with site.client() as anonymous:
        with_status(401, lambda each: each.send(anonymous))


def test_a_role_that_does_not_allow_it(site: Site) -> None:
    with site.client(site.token("publisher")) as publisher, site.client(site.token("viewer")) as viewer:
        with_status(403, lambda each: each.send(viewer if each.id in OF_PUBLISHERS else publisher))


@pytest.mark.long
def test_what_does_not_exist(site_database: Database, all_roles: str, http: httpx.Client) -> None:
    # Without an address of its own a server makes no URL of any message.
    addressed = Site(site_database, url="https://queue.example")

    def send(operation: Operation) -> httpx.Response:
        # A policy of no.such.topic would be found by remove_policy, which runs at the same time.
        if operation.id == "change_policy":
            return http.patch("/v1/topics/another.topic", json=operation.example)
        return operation.send(other if operation.id == "make_signal_url" else http)

    with addressed.client(all_roles) as other:
        with_status(404, send)
    addressed.stop()


def test_a_body_that_does_not_arrive(site: Site, all_roles: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "BODY_S", 0.1)
    address = urlsplit(site.url)

    def stall(operation: Operation) -> int:
        method, path = operation.request
        promised = "" if operation.example is None else "Content-Type: application/json\r\nContent-Length: 10\r\n"
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {all_roles}\r\n{promised}\r\n"
        with socket.create_connection((address.hostname, address.port), timeout=60) as wire:
            wire.sendall(head.encode())
            return int(wire.recv(4096).split()[1])

    with_status(408, stall)


def test_a_conflict_with_what_is_there(http: httpx.Client, queue: Queue) -> None:
    running = queue.publish("r.conflict")
    queue.claim("r.conflict")

    def conflict(operation: Operation) -> httpx.Response:
        if operation.id == "edit_message":
            return http.patch(f"/v1/messages/{running}", json=operation.example)
        twice = {"params": {"key": "k"}} if operation.id == "publish_payload" else {}
        operation.send(http, **twice)
        return operation.send(http, **twice)

    # One after the other: some of the examples would cancel messages that others publish.
    with_status(409, conflict, at_once=1)


def test_a_body_that_is_too_large(small: Site, all_roles: str) -> None:
    with small.client(all_roles) as client:
        with_status(413, lambda each: each.send(client, content=None if each.example is None else b" " * 2000))


def test_another_media_type(http: httpx.Client) -> None:
    with_status(415, lambda each: each.send(http, headers={"Content-Type": "text/csv"}))


def test_an_unknown_host(site: Site) -> None:
    with site.client(headers={"Host": "evil.example"}) as stranger:
        with_status(421, lambda each: each.send(stranger, headers={**JSON, "Host": "evil.example"}))


def test_an_invalid_request(http: httpx.Client) -> None:
    def invalid(operation: Operation) -> httpx.Response:
        method, path = operation.request
        if operation.example is not None:
            return http.request(method, path, content=b"{", headers=JSON)
        if operation.path == path:
            return http.request(method, path, params={"limit": 0, "since": "never"})
        return http.request(method, re.sub(r"\{\w+\}", "%20", operation.path))

    with_status(422, invalid)


@pytest.mark.long
def test_too_many_wrong_tokens(site_database: Database) -> None:
    guessed = Site(site_database)
    with guessed.client("pgr_wrong") as stranger:
        for _ in range(30):
            stranger.get("/v1/stats")
        with_status(429, lambda each: each.send(stranger))
    guessed.stop()


def test_too_many_headers(http: httpx.Client) -> None:
    with_status(431, lambda each: each.send(http, headers=[*JSON.items(), *((f"x-{n}", "1") for n in range(201))]))


@pytest.mark.long
def test_a_database_that_does_not_answer(site_database: Database) -> None:
    alone = Site(site_database, dsn="postgresql://127.0.0.1:1/nothing")
    with alone.client() as client:
        with_status(503, lambda each: each.send(client))
    alone.stop()


def test_a_read_only_database_is_a_reason_to_try_again() -> None:
    """The status is not 409, for which a worker would drop its work."""
    problem = database_problem(
        psycopg.errors.ReadOnlySqlTransaction("cannot execute UPDATE in a read-only transaction")
    )

    assert (problem.status, problem.code, int(problem.headers["Retry-After"]) > 0) == (503, "read_only", True)
