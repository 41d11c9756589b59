"""The HTTP API and the dashboard inside of another application, below a path of it."""

from __future__ import annotations

import asyncio
import html
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from fastapi import FastAPI, Request

from pgrouse import publish
from pgrouse.config.config import Config
from pgrouse.web import Caller, MountedApp, app
from pgrouse.web.access.caller import Role
from pgrouse.web.page.page import NAVIGATION
from tests.api.site import Site
from tests.server.postgres import Database, Postgres

PATH = re.compile(r'\s(?:href|src|action|hx-get|hx-post|data-live)="(/[^"]*)"')
ADA = Caller("ada", frozenset(Role))


def shop(queue: MountedApp, path: str = "/queue") -> FastAPI:
    """The application around it."""
    outer = FastAPI()

    @outer.middleware("http")
    async def state(request: Request, call_next: Callable[[Request], Any]) -> Any:
        # Names that the application inside uses too.
        request.state.identified = request.state.session = request.state.caller = "someone of the shop"
        request.state.user = request.headers.get("x-user")
        return await call_next(request)

    outer.mount(path, queue)
    return outer


def by_shop(request: Request) -> Caller | None:
    return ADA if request.state.user == "ada" else None


class Browser:
    """A client of an application, which runs without its lifespan.

    Each request has an event loop of its own, unless a runner is given.
    """

    def __init__(
        self,
        outer: Any,
        base_url: str = "http://shop.example.com",
        run: Callable[[Any], Any] = asyncio.run,
        **headers: str,
    ) -> None:
        self.outer, self.base_url, self.run, self.headers, self.cookies = outer, base_url, run, headers, httpx.Cookies()

    def __call__(self, method: str, path: str, headers: dict[str, str] | None = None, **options: Any) -> httpx.Response:
        async def request() -> httpx.Response:
            transport = httpx.ASGITransport(self.outer, client=("127.0.0.1", 1))
            given = {**self.headers, **(headers or {})}
            async with httpx.AsyncClient(transport=transport, base_url=self.base_url, headers=given) as client:
                client.cookies = self.cookies
                answer = await client.request(method, path, **options)
                self.cookies = client.cookies
                return answer

        answer: httpx.Response = self.run(request())
        return answer

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self("GET", path, **options)

    def post(self, path: str, **options: Any) -> httpx.Response:
        return self("POST", path, **options)


@pytest.fixture
def queue(database: Database) -> MountedApp:
    return app(database.dsn, authenticate=by_shop, allowed_hosts=["shop.example.com"])


@pytest.fixture
def client(queue: MountedApp) -> Iterator[Browser]:
    """Ada's browser."""
    with asyncio.Runner() as runner:
        yield Browser(shop(queue), run=runner.run, **{"x-user": "ada"})


def test_each_request_may_have_an_event_loop_of_its_own(queue: MountedApp) -> None:
    client = Browser(shop(queue), **{"x-user": "ada"})
    assert [client.get("/queue/topics").status_code for _ in range(3)] == [200, 200, 200]


def test_every_path_of_every_page_is_below_it(client: Browser, db: psycopg.Connection[Any]) -> None:
    """Links, forms, scripts and the stream; and there is something at each link."""
    message_id = publish(db, "orders.created", {"id": 1})
    db.execute("SELECT messages.claim('w', ARRAY['orders.created'], 1)")
    seen: set[str] = set()
    to_do = [f"/queue{link.path}" for link in NAVIGATION] + [f"/queue/messages/{message_id:d}", "/queue/v1/docs"]
    while to_do:
        path = to_do.pop()
        seen.add(path)
        answer = client.get(path)
        assert answer.status_code in (200, 303), (path, answer.text)
        if "html" not in answer.headers["content-type"]:
            continue
        paths = PATH.findall(answer.text)
        assert all(each.startswith("/queue/") for each in paths), (path, paths)
        links = {html.unescape(each) for each in re.findall(r'\s(?:href|src)="([^"]*)"', answer.text)}
        to_do += [each for each in links if each.startswith("/") and each not in seen and each not in to_do]
    assert f"/queue/messages/{message_id:d}" in seen
    assert 'href="/queue/topics" data-key="t" aria-current="page"' in client.get("/queue/topics").text
    assert any(each.startswith("/queue/static/") for each in seen)


def test_an_action_leads_back_to_its_page(client: Browser, db: psycopg.Connection[Any]) -> None:
    publish(db, "orders.created", {"id": 1})
    headers = {"referer": "http://shop.example.com/queue/topics/orders.created", "origin": "http://shop.example.com"}

    answer = client.post("/queue/topics/orders.created/pause", data={"reason": "test"}, headers=headers)

    assert (answer.status_code, answer.headers["location"]) == (303, "/queue/topics/orders.created")
    actor = db.execute("SELECT actor FROM messages.audit WHERE action = 'pause'").fetchone()
    assert actor == ("ada",)


def test_another_site_cannot_act(client: Browser) -> None:
    answer = client.post("/queue/topics/a/pause", headers={"origin": "http://evil.example.com"})
    assert answer.status_code == 403


class TestStranger:
    """Those whom the application does not know need a token, on this machine too."""

    def test_a_page_leads_to_the_login(self, client: Browser) -> None:
        answer = client.get("/queue/topics?q=a", headers={"x-user": "", "accept": "text/html"})
        assert (answer.status_code, answer.headers["location"]) == (303, "/queue/login?next=%2Ftopics%3Fq%3Da")

    def test_a_part_of_a_page_leads_to_the_login(self, client: Browser) -> None:
        answer = client.get("/queue/", headers={"x-user": "", "accept": "text/html", "hx-request": "true"})
        assert (answer.status_code, answer.headers["hx-redirect"]) == (401, "/queue/login")

    def test_nothing_is_local(self, database: Database) -> None:
        answer = Browser(shop(app(database.dsn)), "http://127.0.0.1").get("/queue/v1/topics")
        assert answer.status_code == 401

    def test_a_token_opens_a_session_below_it(self, database: Database, client: Browser) -> None:
        token = Site.token(type("Tokens", (), {"database": database})(), "viewer", "operator")  # type: ignore[arg-type]
        client.headers["x-user"] = ""

        answer = client.post("/queue/login", data={"token": token, "next": "/topics"})

        assert (answer.status_code, answer.headers["location"]) == (303, "/queue/topics")
        assert "Path=/queue;" in answer.headers["set-cookie"]
        page = client.get("/queue/topics", headers={"accept": "text/html"})
        assert page.status_code == 200
        (csrf,) = set(re.findall(r'name="csrf" (?:value|content)="([^"]+)"', page.text))
        ended = client.post("/queue/logout", data={"csrf": csrf})
        assert (ended.status_code, ended.headers["location"]) == (303, "/queue/login")
        assert client.get("/queue/topics", headers={"accept": "text/html"}).status_code == 303


@pytest.mark.parametrize("authorization", ["", "Bearer", "Bearer x", "Basic eDp4", "Other"])
def test_a_caller_that_the_application_knows_needs_a_known_host_whatever_its_headers(
    queue: MountedApp, db: psycopg.Connection[Any], authorization: str
) -> None:
    """A page whose name leads here, by DNS rebinding, may add any header.

    Only the application knows by what it identifies the caller.
    """
    rebound = Browser(shop(queue), "http://evil.example.com", **{"x-user": "ada", "authorization": authorization})

    answers = [
        rebound.get("/queue/v1/topics"),
        rebound.post("/queue/v1/messages", json={"topic": "a", "payload": 1}),
        rebound.post("/queue/v1/messages", content=b"", headers={"origin": "http://evil.example.com"}),
    ]

    assert [(each.status_code, each.json()["code"]) for each in answers] == [(421, "unknown_host")] * 3
    assert db.execute("SELECT count(*) FROM messages.message").fetchone() == (0,)


def test_a_token_is_valid_under_any_host(database: Database, queue: MountedApp) -> None:
    token = Site.token(type("Tokens", (), {"database": database})(), "viewer")  # type: ignore[arg-type]
    by_token = Browser(shop(queue), "http://other.example.com", authorization=f"Bearer {token}")

    assert by_token.get("/queue/v1/topics").status_code == 200


def test_the_api_is_below_it(client: Browser) -> None:
    answer = client.post("/queue/v1/messages", json={"topic": "orders.created", "payload": {}})

    assert answer.status_code == 201
    assert answer.headers["location"].startswith("/queue/v1/messages/")
    assert client.get(answer.headers["location"]).json()["topic"] == "orders.created"


def test_a_wrong_method_names_the_right_ones(client: Browser) -> None:
    answer = client("DELETE", "/queue/v1/messages")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, POST")


def test_an_async_function_may_say_who_it_is(database: Database) -> None:
    async def known(request: Request) -> Caller | None:
        await asyncio.sleep(0)
        return ADA

    client = Browser(shop(app(database.dsn, authenticate=known, allowed_hosts=["*"])))
    assert client.get("/queue/v1/topics").status_code == 200


def test_it_also_runs_alone(database: Database) -> None:
    client = Browser(app(database.dsn, authenticate=lambda _: ADA, allowed_hosts=["*"]))
    assert 'href="/topics"' in client.get("/").text


def test_its_connections_end_with_the_event_loop(
    queue: MountedApp, db: psycopg.Connection[Any], eventually: Callable[..., Any]
) -> None:
    connections = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE application_name LIKE 'pgrouse web%' AND datname = current_database()"
    )

    async def main() -> None:
        transport = httpx.ASGITransport(shop(queue))
        headers = {"x-user": "ada"}
        async with httpx.AsyncClient(
            transport=transport, base_url="http://shop.example.com", headers=headers
        ) as client:
            assert (await client.get("/queue/topics")).status_code == 200
        assert db.execute(connections).fetchone() != (0,)

    asyncio.run(main())
    eventually(lambda: db.execute(connections).fetchone() == (0,))


def test_several_queues_in_one_process_have_their_own_tokens_and_a_menu(database: Database, server: Postgres) -> None:
    with server.new_database(template=server.migrated) as second:
        mail = Config.model_validate(
            {
                "database": {"dsn": second.dsn},
                "web": {"dashboards": {"orders": "http://shop.example.com/orders"}},
                "alerts": {"environment": "mail"},
            }
        )
        token = Site.token(type("Tokens", (), {"database": database})(), "operator", "publisher")  # type: ignore[arg-type]
        other = Site.token(type("Tokens", (), {"database": second})(), "viewer")  # type: ignore[arg-type]
        outer = FastAPI()
        outer.mount("/orders", app(database.dsn, allowed_hosts=["*"]))
        outer.mount("/mail", app(mail, allowed_hosts=["*"]))
        client = Browser(outer)

        def status(path: str, bearer: str) -> int:
            return client.get(path, headers={"authorization": f"Bearer {bearer}"}).status_code

        assert [status(f"/{each}/v1/topics", token) for each in ("orders", "mail")] == [200, 401]
        assert [status(f"/{each}/v1/topics", other) for each in ("orders", "mail")] == [401, 200]
        client.post("/mail/login", data={"token": other})
        assert [client.get(f"/{each}/v1/topics").status_code for each in ("orders", "mail")] == [401, 200]
        page = client.get("/mail/").text
        assert "<summary>mail</summary>" in page
        assert '<a href="http://shop.example.com/orders">orders</a>' in page


@pytest.mark.long
def test_an_open_stream_does_not_hold_the_stop_of_the_server(
    database: Database, db: psycopg.Connection[Any], tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    """uvicorn waits for open responses without a limit; also, a stream shows paths below the mount."""
    (tmp_path / "outer.py").write_text(
        "import os\nfrom fastapi import FastAPI\nfrom pgrouse.web import Caller, app\n"
        "application = FastAPI()\n"
        'ada = Caller("ada", frozenset({"operator"}))\n'
        'application.mount("/queue", app(os.environ["DSN"], authenticate=lambda request: ada))\n'
    )
    publish(db, "orders.created")
    environ = {**os.environ, "DSN": database.dsn}
    command = [sys.executable, "-m", "uvicorn", "outer:application", "--port", "0"]
    log = tmp_path / "log"
    with log.open("w") as output:
        server = subprocess.Popen(command, cwd=tmp_path, env=environ, stderr=output, stdout=output)
    try:
        (url,) = eventually(lambda: re.findall(r"http://[\d.:]+", log.read_text()), within_s=120)
        with httpx.stream("GET", f"{url}/queue/live/topics", timeout=60) as stream:
            lines = stream.iter_lines()
            news = next(line for line in lines if line.startswith("data: {"))
            assert 'href=\\"/queue/topics/orders.created\\"' in news
            server.send_signal(signal.SIGTERM)
            for _ in lines:
                pass
        assert server.wait(60) in (0, -signal.SIGTERM)
    finally:
        server.kill()
        server.wait()
