"""The security of the server: foreign host names and pages, large bodies, headers of answers, and the login."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator

import httpx
import pytest

from pgrouse.web.access.security import COOKIE
from pgrouse.web.access.token_cache import csrf_token
from pgrouse.web.http import http_protocol
from tests.api.site import Site, code
from tests.server.deadline import eventually
from tests.server.postgres import Database, Postgres
from tests.sql.queue import Queue


def test_a_foreign_host_name_is_refused_and_those_of_this_machine_are_accepted(site: Site) -> None:
    for foreign in ("evil.example.com", "localhost.evil.com", "127.0.0.1.evil.com", "", "a b"):
        answer = httpx.get(f"{site.url}/v1/stats", headers={"Host": foreign})
        assert (answer.status_code, code(answer)) == (421, "unknown_host")
    for own in ("localhost", "127.0.0.1:1234", "[::1]:80", "192.168.1.7", socket.gethostname()):
        assert httpx.get(f"{site.url}/v1/stats", headers={"Host": own}).status_code == 401
    assert first_line(site, "GET /v1/stats HTTP/1.0") == "HTTP/1.1 421 Misdirected Request"


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
@pytest.mark.parametrize(
    "lines",
    [
        "GET {path} HTTP/1.0",
        "GET {path} HTTP/1.0\r\nHost: pgrouse-web.svc",
        "HEAD {path} HTTP/1.1\r\nHost: pgrouse-web.default.svc.cluster.local.:8420",
        "GET http://pgrouse-web{path} HTTP/1.1\r\nHost: pgrouse-web",
        "GET {path} HTTP/1.1\r\nHost:",
    ],
)
def test_a_probe_is_answered_whatever_its_host_is_called(site: Site, path: str, lines: str) -> None:
    assert first_line(site, lines.format(path=path)) == "HTTP/1.1 200 OK"


def test_metrics_are_shown_to_a_program_that_names_no_host_but_not_under_a_foreign_name(database: Database) -> None:
    # The request has no token: a token exempts from the check of the host.
    site = Site(database)
    try:
        assert first_line(site, "GET /metrics HTTP/1.0") == "HTTP/1.1 200 OK"
        foreign = first_line(site, "GET /metrics HTTP/1.1\r\nHost: evil.example.com")
        assert foreign == "HTTP/1.1 421 Misdirected Request"
    finally:
        site.stop()


def first_line(site: Site, lines: str) -> str:
    """Send a request as it stands, and return the first line of the answer."""
    url = httpx.URL(site.url)
    with socket.create_connection((url.host, url.port or 80), timeout=30) as wire:
        wire.sendall(f"{lines}\r\nConnection: close\r\n\r\n".encode())
        return wire.makefile("rb").readline().decode().strip()


def test_a_client_with_a_token_may_use_any_host_name(http: httpx.Client) -> None:
    assert http.get("/v1/stats", headers={"Host": "pgrouse.queue.svc.cluster.local"}).status_code == 200


@pytest.mark.parametrize(
    ("header", "value"),
    [
        *(("Origin", "https://evil.example.com"), ("Origin", "null")),
        *(("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Site", "same-site")),
    ],
)
def test_a_page_of_another_site_changes_nothing(http: httpx.Client, header: str, value: str) -> None:
    answer = http.post("/v1/messages", json={"topic": "t", "payload": None}, headers={header: value})

    assert (answer.status_code, code(answer)) == (403, "other_origin")


def test_no_other_site_may_read_an_answer(http: httpx.Client) -> None:
    answer = http.get("/v1/stats", headers={"Origin": "https://evil.example.com"})
    preflight = http.options("/v1/stats", headers={"Origin": "https://x.com", "Access-Control-Request-Method": "GET"})

    assert not [name for name in (*answer.headers, *preflight.headers) if name.startswith("access-control")]


@pytest.mark.parametrize("path", ["/livez", "/v1/stats", "/login", "/nowhere", "/static/app.css"])
def test_every_answer_has_the_security_headers(http: httpx.Client, path: str) -> None:
    headers = http.get(path).headers

    assert "unsafe" not in headers["content-security-policy"]
    assert "script-src 'self'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["cache-control"]


def test_a_body_above_the_limit_is_refused_with_or_without_its_length(
    server: Postgres, site_database: Database, all_roles: str
) -> None:
    site = Site(site_database, max_body_bytes=2000)
    try:
        with site.client(all_roles) as client:
            declared = client.post("/v1/messages", json={"topic": "t", "payload": "x" * 3000})
            parts = [b'{"topic":', b'"t","payload":"', b"x" * 3000, b'"}']
            undeclared = client.post("/v1/messages", content=iter(parts))
            small = client.post("/v1/messages", json={"topic": "t", "payload": "x"})
    finally:
        site.stop()

    assert (declared.status_code, undeclared.status_code, small.status_code) == (413, 413, 201)
    assert code(declared) == "too_large"


def test_an_unknown_client_is_refused_before_its_body_is_read(site: Site) -> None:
    with socket.create_connection(("127.0.0.1", int(site.url.rsplit(":", 1)[1]))) as wire:
        wire.sendall(b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n")

        assert wire.recv(100).startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/v1/nowhere", 404), ("DELETE", "/v1/stats", 405)])
def test_an_unknown_path_is_answered_with_a_problem(http: httpx.Client, method: str, path: str, status: int) -> None:
    answer = http.request(method, path)

    assert answer.status_code == status
    assert code(answer)


@pytest.fixture
def browser(site: Site) -> Iterator[httpx.Client]:
    """A logged-in client, without a token."""
    with httpx.Client(base_url=site.url) as client:
        answer = client.post("/login", data={"token": site.token("viewer", "publisher", "operator")})
        assert answer.status_code == 303
        assert _cookie(answer) == client.cookies[COOKIE]
        yield client


def _cookie(answer: httpx.Response) -> str:
    found = re.match(rf"{COOKIE}=([^;]+);(.*)", answer.headers["set-cookie"])
    assert found is not None
    assert {"HttpOnly", "SameSite=strict"} <= {part.strip() for part in found[2].split(";")}
    return found[1]


def test_a_cookie_changes_nothing_without_its_csrf_token(browser: httpx.Client, site: Site) -> None:
    word = csrf_token(browser.cookies[COOKIE])
    message = {"topic": "from.browser", "payload": None}

    assert browser.get("/v1/stats").status_code == 200
    assert code(browser.post("/v1/messages", json=message)) == "csrf"
    assert code(browser.post("/v1/messages", json=message, headers={"X-CSRF-Token": "x" * 64})) == "csrf"
    assert browser.post("/v1/messages", json=message, headers={"X-CSRF-Token": word}).status_code == 201


def test_a_logout_ends_the_session_at_once(browser: httpx.Client) -> None:
    cookie = browser.cookies[COOKIE]
    assert browser.post("/logout").status_code == 403, "not by a forged form"

    answer = browser.post("/logout", data={"csrf": csrf_token(cookie)})

    assert answer.status_code == 303
    assert browser.get("/v1/stats", headers={"Cookie": f"{COOKIE}={cookie}"}).status_code == 401


def test_a_session_ends_with_its_token(site: Site, queue: Queue) -> None:
    token = site.token("viewer", name="guest")
    cookie = _cookie(httpx.post(f"{site.url}/login", data={"token": token}))

    queue.call("revoke_token", "guest")

    eventually(lambda: httpx.get(f"{site.url}/v1/stats", cookies={COOKIE: cookie}).status_code == 401)


def test_a_wrong_token_cannot_log_in(site: Site) -> None:
    answer = httpx.post(f"{site.url}/login", data={"token": "pgr_wrong"})

    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    assert "unknown, expired or revoked" in answer.text


@pytest.mark.parametrize("path", ["//evil.example.com", "https://evil.example.com", "/\\evil.example.com", "/\t/evil"])
def test_the_login_redirects_to_no_other_site(site: Site, path: str) -> None:
    answer = httpx.post(f"{site.url}/login", data={"token": site.token("viewer"), "next": path})

    assert answer.headers["location"] == "/"


def test_the_cookie_is_secure_behind_https(site_database: Database) -> None:
    site = Site(site_database, proxies=["127.0.0.1"])
    try:
        proxied = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "192.0.2.7"}
        answer = httpx.post(f"{site.url}/login", data={"token": site.token("viewer")}, headers=proxied)
    finally:
        site.stop()

    assert "Secure" in answer.headers["set-cookie"]


@pytest.mark.long
def test_without_tokens_only_direct_local_clients_are_operators(server: Postgres) -> None:
    with server.new_database(template=server.migrated) as database:
        site = Site(database)
        try:
            here = httpx.post(f"{site.url}/v1/messages", json={"topic": "t", "payload": None})
            forwarded = httpx.get(f"{site.url}/v1/stats", headers={"X-Forwarded-For": "192.0.2.7"})
            site.token("viewer", name="first")
            eventually(lambda: httpx.get(f"{site.url}/v1/stats").status_code == 401)
        finally:
            site.stop()

    assert (here.status_code, forwarded.status_code) == (201, 401)


def test_static_files_with_a_digest_in_their_name_are_cached_forever(site: Site) -> None:
    page = httpx.get(f"{site.url}/login").text
    found = re.search(r'href="(/static/[^"]+\.css\?v=[0-9a-f]{16})"', page)
    assert found is not None

    named = httpx.get(site.url + found[1])
    unnamed = httpx.get(site.url + found[1].partition("?")[0])
    again = httpx.get(site.url + found[1], headers={"If-None-Match": named.headers["etag"]})

    assert "immutable" in named.headers["cache-control"]
    assert unnamed.headers["cache-control"] == "no-cache"
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static//etc/passwd", "/static/", "/static/%00"]
)
def test_only_static_files_are_served_as_such(site: Site, path: str) -> None:
    with socket.create_connection(("127.0.0.1", int(site.url.rsplit(":", 1)[1]))) as wire:
        wire.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())

        assert wire.recv(100).startswith((b"HTTP/1.1 404", b"HTTP/1.1 400"))


@pytest.fixture
def wire(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A connection to the site, where the beginning of a request may take a second."""
    monkeypatch.setattr(http_protocol, "HEADERS_S", 1.0)
    with socket.create_connection(("127.0.0.1", int(site.url.rsplit(":", 1)[1])), timeout=60) as wire:
        yield wire


def test_a_body_that_comes_after_its_answer_ends_no_connection(wire: socket.socket) -> None:
    wire.sendall(b"POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n")
    assert wire.recv(12) == b"HTTP/1.1 401"
    wire.sendall(b"{}")

    assert not is_hung_up_on(wire, looks=40)


def is_hung_up_on(wire: socket.socket, *, saying: bytes = b"", looks: int = 400) -> bool:
    """Send something repeatedly, or nothing, until the server closes the connection."""
    wire.settimeout(0.05)
    for _ in range(looks):
        try:
            if saying:
                wire.sendall(saying)
            if not wire.recv(1000):
                return True
        except TimeoutError:
            continue
        except ConnectionError:
            return True
    return False


GET = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"


def test_a_connection_that_sends_nothing_is_closed(wire: socket.socket) -> None:
    assert is_hung_up_on(wire)


def test_a_connection_that_never_completes_its_headers_is_closed(wire: socket.socket) -> None:
    wire.sendall(GET)

    assert is_hung_up_on(wire, saying=b"X-A: b\r\n")


@pytest.mark.long
def test_a_kept_connection_waits_for_the_next_request_and_then_not_for_its_headers(wire: socket.socket) -> None:
    wire.sendall(GET + b"\r\n")
    assert wire.recv(1000).startswith(b"HTTP/1.1 200")
    time.sleep(1.5)
    wire.sendall(GET + b"\r\n")
    assert wire.recv(1000).startswith(b"HTTP/1.1 200")

    wire.sendall(GET)
    assert is_hung_up_on(wire, saying=b"X-A: b\r\n")
