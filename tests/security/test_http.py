"""What outsiders try on the web server by HTTP.

They want to be taken for the local user, to fill its memory, to query the database for nothing.
"""

from __future__ import annotations

import base64
import secrets
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from pgrouse.web import server
from pgrouse.web.access import security, token_cache, tokens
from pgrouse.web.access.security import COOKIE
from pgrouse.web.http import http_protocol
from tests.api.site import Site, code
from tests.server.deadline import eventually
from tests.server.postgres import Database, Postgres
from tests.sql.queue import Queue

EVIL = "evil.test"
FORGED = ["", " ", "Basic", "Basic Og==", "Basic " + base64.b64encode(b"x:").decode(), "Bearer", "Bearer  ", "bearer\t"]


@pytest.fixture(scope="module")
def database(shared: Database) -> Database:
    """A database without any token."""
    return shared


@pytest.fixture(scope="module")
def queue(database: Database) -> Queue:
    """The queue itself."""
    return Queue(database.connect())


@pytest.fixture(scope="module")
def local(database: Database) -> Iterator[Site]:
    """A web server where a caller on this machine is the operator."""
    site = Site(database)
    yield site
    site.stop()


@pytest.fixture(autouse=True)
def _no_failures_before(request: pytest.FixtureRequest) -> None:
    for name in {"local", "with_tokens"} & set(request.fixturenames):
        request.getfixturevalue(name).app.state.token_cache._failures.clear()


def send_raw(site: Site, *lines: bytes, body: bytes = b"") -> bytes:
    """Send a request byte by byte as given; return what arrives until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", int(site.url.rsplit(":", 1)[1])), timeout=60) as wire:
        wire.sendall(b"\r\n".join([*lines, b"Connection: close", b"", body]))
        answer = b""
        while part := wire.recv(65536):
            answer += part
    return answer


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


MESSAGE = b'{"topic": "pwn", "payload": 1}'


def publishes(*headers: bytes, target: bytes = b"/v1/messages") -> tuple[bytes, ...]:
    length = b"Content-Length: %d" % len(MESSAGE)
    return (b"POST %s HTTP/1.1" % target, *headers, b"Content-Type: application/json", length)


@pytest.mark.parametrize("forged", [*FORGED, "Digest x", pytest.param(f"Bearer {tokens.new()}", id="an unknown one")])
def test_a_caller_without_a_valid_token_is_unauthenticated_under_any_name(
    local: Site, queue: Queue, forged: str
) -> None:
    shown = b"Authorization: " + forged.encode()

    for host in (EVIL.encode(), b"127.0.0.1"):
        for answer in (
            send_raw(local, b"GET /v1/stats HTTP/1.1", b"Host: " + host, shown),
            send_raw(local, b"GET /messages HTTP/1.1", b"Host: " + host, shown, b"Accept: application/json"),
            send_raw(local, *publishes(b"Host: " + host, shown), body=MESSAGE),
        ):
            assert status(answer) in (401, 429), answer
    assert queue.value("SELECT count(*) FROM messages.message WHERE topic = 'pwn'") == 0


UPGRADES = {
    "h2c": b"Connection: Upgrade\r\nUpgrade: h2c",
    "websocket": b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: "
    b"dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13",
}


@pytest.mark.parametrize("upgrade", UPGRADES.values(), ids=UPGRADES)
@pytest.mark.parametrize("method", [b"POST", b"GET"])
def test_bytes_after_an_upgrade_request_are_no_further_request(
    local: Site, queue: Queue, method: bytes, upgrade: bytes
) -> None:
    smuggled = b"\r\n".join([*publishes(b"Host: 127.0.0.1"), b"Connection: close", b"", MESSAGE])
    head = [method + b" /v1/messages HTTP/1.1", b"Host: 127.0.0.1", b"Content-Type: application/json", upgrade]
    with socket.create_connection(("127.0.0.1", int(local.url.rsplit(":", 1)[1])), timeout=60) as wire:
        wire.sendall(b"\r\n".join([*head, b"Content-Length: %d" % len(smuggled), b"", b""]))
        answer = wire.recv(65536)
        with suppress(OSError):  # it may have hung up
            wire.sendall(smuggled)
            while part := wire.recv(65536):
                answer += part

    assert answer.count(b"HTTP/1.1 ") == 1, answer
    assert status(answer) == 400
    assert queue.value("SELECT count(*) FROM messages.message WHERE topic = 'pwn'") == 0


def test_an_upgrade_request_without_a_body_is_answered_like_any_request(local: Site) -> None:
    with socket.create_connection(("127.0.0.1", int(local.url.rsplit(":", 1)[1])), timeout=60) as wire:
        wire.sendall(b"GET /v1/stats HTTP/1.1\r\nHost: 127.0.0.1\r\n" + UPGRADES["h2c"] + b"\r\n\r\n")
        answer = b""
        while part := wire.recv(65536):
            answer += part

    assert status(answer) == 200
    assert b'"topics"' in answer


SAID_TWICE = [
    (b"Host: 127.0.0.1", b"Host: evil.test"),
    (b"Host: evil.test", b"Host: 127.0.0.1"),
    (b"Host: 127.0.0.1", b"Authorization: ", b"Authorization: Bearer x"),
    (b"Host: 127.0.0.1", b"Origin: http://127.0.0.1", b"Origin: http://evil.test"),
    (b"Host: 127.0.0.1", b"Sec-Fetch-Site: same-origin", b"Sec-Fetch-Site: cross-site"),
    (b"Host: 127.0.0.1", b"Content-Type: text/plain"),
    (b"Host: 127.0.0.1", b"Content-Length: 30"),
    (b"Host: 127.0.0.1", b"Idempotency-Key: a", b"Idempotency-Key: b"),
    (b"Host: 127.0.0.1", b"X-CSRF-Token: a", b"X-CSRF-Token: b"),
]


@pytest.mark.parametrize("headers", SAID_TWICE, ids=lambda headers: headers[-1].decode())
def test_a_header_that_decides_must_not_occur_twice(local: Site, queue: Queue, headers: tuple[bytes, ...]) -> None:
    answer = send_raw(local, *publishes(*headers), body=MESSAGE)

    assert status(answer) in (400, 421), answer
    assert queue.value("SELECT count(*) FROM messages.message WHERE topic = 'pwn'") == 0


@pytest.mark.parametrize(
    "host",
    [
        b"127.0.0.1/login?x=",
        b"127.0.0.1#",
        b"evil.test@127.0.0.1",
        b"127.0.0.1:80@evil.test",
        b"127.0.0.1\\evil.test",
        b"[::1]evil",
    ],
)
def test_a_host_name_has_no_path_and_no_user(local: Site, host: bytes) -> None:
    assert status(send_raw(local, b"GET /v1/stats HTTP/1.1", b"Host: " + host)) in (400, 421)


def test_an_address_in_the_request_line_does_not_replace_the_host(local: Site) -> None:
    for target in (b"http://127.0.0.1/v1/stats", b"http://127.0.0.1/v1/messages"):
        assert status(send_raw(local, b"GET %s HTTP/1.1" % target, b"Host: evil.test")) in (400, 404, 421)


@pytest.mark.parametrize(
    "header",
    ["Forwarded", "Via", "X-Real-IP", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port"],
)
def test_a_caller_behind_a_proxy_is_not_local(local: Site, header: str) -> None:
    assert httpx.get(f"{local.url}/v1/stats", headers={header: "x"}).status_code == 401


def test_bytes_after_a_body_do_not_identify_the_caller(local: Site, queue: Queue) -> None:
    parts = b"%x\r\n%s\r\n0\r\nX-Forwarded-For: 192.0.2.7\r\nAuthorization: Bearer x\r\n\r\n" % (len(MESSAGE), MESSAGE)
    head = (b"POST /v1/messages HTTP/1.1", b"Host: localhost", b"Content-Type: application/json")

    answer = send_raw(local, *head, b"Transfer-Encoding: chunked", body=parts)

    assert status(answer) == 201, answer
    queue.conn.execute("DELETE FROM messages.message")


def test_a_logout_ends_only_its_own_session(with_tokens: Site) -> None:
    victim = httpx.post(f"{with_tokens.url}/login", data={"token": with_tokens.token("viewer")}).cookies[COOKIE]
    other = {"Authorization": f"Bearer {with_tokens.token('viewer')}"}

    httpx.post(f"{with_tokens.url}/logout", headers=other, cookies={COOKIE: victim})

    assert httpx.get(f"{with_tokens.url}/v1/stats", cookies={COOKIE: victim}).status_code == 200


# Limits of sizes.


@pytest.fixture(params=[HttpToolsProtocol, H11Protocol], ids=["httptools", "h11"], scope="module")
def parsed(request: pytest.FixtureRequest, database: Database) -> Iterator[Site]:
    """A web server with each of the parsers."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(server, "HttpProtocol", http_protocol.bounded_protocol(request.param))
        site = Site(database)
        yield site
        site.stop()


def send_endlessly(site: Site, head: bytes, drop: bytes, most: int = 16 << 20) -> tuple[int, bytes]:
    """Send the same bytes again and again until the server closes the connection.

    Return how many it took, and its answer.
    """
    with socket.create_connection(("127.0.0.1", int(site.url.rsplit(":", 1)[1])), timeout=60) as wire:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)
        wire.sendall(head)
        sent, answer = len(head), b""
        while sent < most:
            try:
                sent += wire.send(drop)
            except OSError:
                break
        try:
            while part := wire.recv(65536):
                answer += part
        except OSError:
            pass
    return sent, answer


HEAD = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
ENDLESS = {
    "one header": (HEAD + b"X-A: ", b"a" * 10_000),
    "many headers": (HEAD, b"X-A: b\r\n" * 1000),
    "a name": (HEAD + b"X", b"a" * 10_000),
    "the address": (b"GET /", b"a" * 10_000),
    "after an answer": (HEAD + b"\r\n" + HEAD + b"X-A: ", b"a" * 10_000),
    "after a body": (CHUNKED, b"X-A: b\r\n" * 1000),
    "one after a body": (CHUNKED + b"X-A: ", b"a" * 10_000),
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_the_connection_is_closed_before_endless_headers_fill_the_memory(parsed: Site, kind: str) -> None:
    # The buffers of the kernels on both sides are added.
    sent, _ = send_endlessly(parsed, *ENDLESS[kind])

    assert sent < 16 << 20
    assert httpx.get(f"{parsed.url}/livez").status_code == 200


def test_headers_that_are_too_large_get_an_error(local: Site) -> None:
    size = http_protocol.MAX_HEADER_BYTES + 1
    with socket.create_connection(("127.0.0.1", int(local.url.rsplit(":", 1)[1])), timeout=60) as wire:
        wire.sendall((HEAD + b"X-A: ").ljust(size, b"a"))

        assert wire.recv(1000).startswith(b"HTTP/1.1 431")


def test_too_many_headers_get_an_error(local: Site) -> None:
    many = [(f"X-{n}", "a") for n in range(security.MAX_HEADERS)]

    answer = httpx.get(f"{local.url}/livez", headers=many)

    assert (answer.status_code, code(answer)) == (431, "too_many_headers")


def test_large_headers_and_large_bodies_within_the_limits_are_accepted(parsed: Site, queue: Queue) -> None:
    large = {"X-A": "a" * 60_000}

    with httpx.Client(base_url=parsed.url, timeout=90) as client:
        for _ in range(2):
            assert client.get("/livez", headers=large).status_code == 200
            answer = client.post("/v1/messages", json={"topic": "big", "payload": "x" * 3_000_000}, headers=large)
            assert answer.status_code == 201, answer.text
            pieces = (b"x" * 10 for _ in range(30_000))
            assert client.post("/v1/topics/big/messages", content=pieces).status_code < 500


# Wrong tokens and cookies.


@pytest.fixture(scope="module")
def with_tokens(server: Postgres) -> Iterator[Site]:
    """A web server that requires tokens."""
    with server.new_database(template=server.migrated) as database:
        site = Site(database)
        site.token("viewer", name="first")
        yield site
        site.stop()


@pytest.fixture
def asked(with_tokens: Site, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The checks of secrets that reach the database."""
    questions: list[str] = []
    ask = token_cache.TokenCache._query

    async def counted(self: token_cache.TokenCache, function: str, key: bytes) -> Any:
        questions.append(function)
        return await ask(self, function, key)

    monkeypatch.setattr(token_cache.TokenCache, "_query", counted)
    # The checks are counted without forgetting any during the test.
    with_tokens.app.state.token_cache._next_throttled_at = float("inf")
    return questions


def by_token() -> dict[str, str]:
    return {"Authorization": f"Bearer {tokens.new()}"}


def by_cookie() -> dict[str, str]:
    return {"Cookie": f"{COOKIE}={secrets.token_urlsafe(32)}"}


@pytest.mark.parametrize("forge", [by_token, by_cookie])
def test_wrong_secrets_reach_the_database_a_bounded_number_of_times(
    with_tokens: Site, asked: list[str], forge: Any
) -> None:
    with httpx.Client(base_url=with_tokens.url, timeout=60) as outsider:
        codes = [outsider.get("/v1/stats", headers=forge()).status_code for _ in range(3 * token_cache.MAX_FAILURES)]

    assert codes == [401] * token_cache.MAX_FAILURES + [429] * 2 * token_cache.MAX_FAILURES
    assert len(asked) == token_cache.MAX_FAILURES


def test_a_cookie_of_an_invalid_form_never_reaches_the_database(with_tokens: Site, asked: list[str]) -> None:
    answer = httpx.get(f"{with_tokens.url}/v1/stats", headers={"Cookie": f"{COOKIE}=guess"})

    assert (answer.status_code, asked) == (401, [])


def test_an_honest_caller_behind_the_same_proxy_is_not_affected(with_tokens: Site, asked: list[str]) -> None:
    known, new = with_tokens.token("viewer"), with_tokens.token("viewer")
    cookie = httpx.post(f"{with_tokens.url}/login", data={"token": known}).cookies[COOKIE]
    with httpx.Client(base_url=with_tokens.url, timeout=60) as outsider:
        while outsider.get("/v1/stats", headers=by_token()).status_code == 401:
            pass
    # Results are cached for two seconds, then checked again.
    with_tokens.app.state.token_cache._cached.clear()

    by_known = httpx.get(f"{with_tokens.url}/v1/stats", headers={"Authorization": f"Bearer {known}"})
    by_session = httpx.get(f"{with_tokens.url}/v1/stats", cookies={COOKIE: cookie})
    with_tokens.app.state.token_cache._next_throttled_at = 0.0
    by_new = httpx.get(f"{with_tokens.url}/v1/stats", headers={"Authorization": f"Bearer {new}"})

    assert (by_known.status_code, by_session.status_code, by_new.status_code) == (200, 200, 200)


def test_all_addresses_of_one_owner_count_as_one(with_tokens: Site) -> None:
    same = {token_cache._network(address) for address in ("2001:db8::1", "2001:db8::ffff:1", "2001:db8:0:0:9::%eth0")}
    other = {
        token_cache._network(address)
        for address in ("2001:db8:0:1::1", "::ffff:192.0.2.1", "192.0.2.1", "192.0.2.2", "?")
    }

    assert (len(same), len(other)) == (1, 4)


# Errors without a fault.


@pytest.mark.parametrize(
    "path", [b"/v1/messages", b"/v1/messages/batch", b"/v1/topics/t/messages", b"/v1/dead/redrive", b"/v1/topics/t"]
)
@pytest.mark.parametrize("key", [b"X-A: b", b"Idempotency-Key: gone"])
def test_a_caller_that_disconnects_leaves_no_error_in_the_log(
    local: Site, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], path: bytes, key: bytes
) -> None:
    method = b"PATCH" if path == b"/v1/topics/t" else b"POST"
    head = [method + b" " + path + b" HTTP/1.1", b"Host: localhost", key, b"Content-Type: application/json"]
    with socket.create_connection(("127.0.0.1", int(local.url.rsplit(":", 1)[1])), timeout=60) as wire:
        wire.sendall(b"\r\n".join([*head, b"Content-Length: 1000", b"", b'{"topic": ']))
        eventually(lambda: local.server.server_state.tasks)

    eventually(lambda: not local.server.server_state.tasks)
    assert [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")] == []
    assert "Traceback" not in capsys.readouterr().out
