"""`web.redact`: what it hides is in no page, no live update and no answer."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import httpx
import pytest
from psycopg.types.json import Jsonb

from pgrouse.config.config import Config, HandlersSettings, WebSettings
from pgrouse.crypto import envelope
from pgrouse.errors import ConfigError
from pgrouse.handlers.declaration.loader import find_redact
from tests.api.redactions import SECRET
from tests.api.site import Site
from tests.server.postgres import Database
from tests.sql.queue import Queue
from tests.web.sample_data import worker

CONTENT = {"word": SECRET, "amount": 12345678901234567890}
Open = Callable[..., httpx.Client]


@pytest.fixture(scope="module")
def ids(queue: Queue) -> dict[str, int]:
    """Messages with the word in everything that a message can carry, and a schedule."""
    content, headers = Jsonb(CONTENT), Jsonb({"tenant": SECRET})
    waiting = queue.publish("mail", payload=content, headers=headers)
    long = queue.publish("mail", payload=Jsonb({"in": SECRET, "more": "x" * 12_000}))
    cut = queue.publish("mail", payload=Jsonb({"in": SECRET, "more": "x" * 120_000}))
    body = queue.publish("bytes", body=SECRET.encode())
    plain = queue.publish("plain", payload=content)
    ended = queue.publish("ended", payload=content, headers=headers)
    queue.settle("complete", queue.claim("ended"), outputs=[content])
    worker(queue, "w-1", ("run",))
    running = queue.publish("run", payload=content)
    (held,) = queue.claim("run", worker="w-1")
    queue.call("set_progress", [held.id], [held.claim_id], [content])
    queue.call("save_step", held.id, held.claim_id, "charge", content)
    queue.call("save_logs", [held.id], [held.claim_id], [f"INFO shop: {SECRET}"])
    queue.schedule("nightly", topic="mail", payload=content, headers=headers)
    queue.conn.execute("UPDATE messages.message SET state = %s WHERE id = %s", [content, waiting])
    named = {"waiting": waiting, "long": long, "cut": cut, "body": body, "ended": ended, "running": running}
    return named | {"plain": plain}


@pytest.fixture(scope="module")
def open_site(site_database: Database, ids: dict[str, int]) -> Iterator[Open]:
    """`open_site("replace", "viewer")` returns a client of a server with this function."""
    with ExitStack() as ends:
        sites: dict[str, Site] = {}

        def open_(redact: str | None, *roles: str) -> httpx.Client:
            if str(redact) not in sites:
                given = {"redact": f"tests.api.redactions:{redact}"} if redact else {}
                site = sites[str(redact)] = Site(site_database, **given)
                ends.callback(site.stop)
            site = sites[str(redact)]
            return ends.enter_context(site.client(site.token(*roles), headers={"accept": "text/html"}))

        yield open_


def places(client: httpx.Client, ids: dict[str, int]) -> set[str]:
    """Return where the word is shown: every page that a link leads to, its live updates, and every read of `/v1`."""
    found, seen = set(), set()
    messages = [f"/{base}/{each}" for each in ids.values() for base in ("messages", "v1/messages")]
    messages += [f"/v1/messages/{each}/logs" for each in ids.values()]
    messages += [f"/messages/{each}/{name}" for each in ids.values() for name in ("payload", "edit")]
    lists = ["messages", "schedules", "schedules/nightly", "audit", "dead", "workers", "topics/mail"]
    to_do = ["/", *messages, "/messages?sort=oldest", *(f"/v1/{each}" for each in lists)]
    while to_do:
        path = to_do.pop()
        if path in seen:
            continue
        seen.add(path)
        text = read(client, path)
        if SECRET in text:
            found.add(path)
        live = re.findall(r'data-live="([^"]+)"', text)
        links = re.findall(r'\shref="(/[^"]*)"', text) if "?" not in path else []
        to_do += [html.unescape(each) for each in (*live, *links) if not each.startswith(("/static/", "/runbooks"))]
    return found


def read(client: httpx.Client, path: str) -> str:
    if not path.startswith("/live/"):
        return client.get(path).text
    with client.stream("GET", path) as stream:
        return next(line for line in stream.iter_lines() if line.startswith("data: {"))


@pytest.fixture(scope="module")
def shown(open_site: Open, ids: dict[str, int]) -> set[str]:
    """Where the word is shown if nothing is hidden."""
    return places(open_site(None, "viewer", "operator"), ids)


def test_what_is_hidden_is_shown_nowhere(open_site: Open, ids: dict[str, int], shown: set[str]) -> None:
    expected = {
        *(f"/messages/{each}" for each in ids.values()),
        *(f"/messages/{each}/payload" for each in ids.values()),
        *(f"/v1/messages/{each}" for name, each in ids.items() if name != "body"),
        f"/messages/{ids['waiting']}/edit",
        f"/v1/messages/{ids['running']}/logs",
        *("/messages", "/messages?sort=oldest", "/live/messages", "/workers", "/live/workers"),
        *("/schedules/nightly", "/live/schedule?subject=nightly", "/v1/schedules", "/v1/schedules/nightly"),
        *("/audit", "/v1/audit", f"/live/message?subject={ids['running']}"),
    }
    assert expected - shown == set()

    client = open_site("replace", "viewer", "operator")
    assert {path for path in shown if SECRET in read(client, path)} == set()


@pytest.mark.parametrize("redact", ["fail", "return_no_json", "return_nothing"])
def test_a_function_that_fails_shows_nothing(
    open_site: Open, ids: dict[str, int], shown: set[str], redact: str, capfd: pytest.CaptureFixture[str]
) -> None:
    client = open_site(redact, "viewer", "operator")
    # The others take the same way as one that raises: a list and a message are enough.
    looked_at = shown if redact == "fail" else {"/messages", "/v1/schedules", f"/messages/{ids['waiting']}"}

    assert {path for path in looked_at if SECRET in read(client, path)} == set()

    assert "hidden: see web.redact" in client.get(f"/messages/{ids['waiting']}").text
    printed = "".join(capfd.readouterr())
    assert SECRET not in printed
    assert ("web.redact_failed" in printed) is (redact == "fail")


def test_what_the_function_returns_is_shown_to_those_who_may_not_see_more(open_site: Open, ids: dict[str, int]) -> None:
    viewer, operator = (open_site("hide_from_viewers", role) for role in ("viewer", "operator"))
    path = f"/v1/messages/{ids['waiting']}"

    assert viewer.get(path).json()["payload"] == CONTENT | {"word": "..."}
    assert operator.get(path).json()["payload"] == CONTENT
    assert SECRET not in viewer.get("/messages").text
    assert SECRET in operator.get("/messages").text


def test_what_is_hidden_is_no_filter_and_is_not_edited(open_site: Open, ids: dict[str, int]) -> None:
    client, waiting = open_site("replace", "viewer", "operator"), ids["waiting"]
    filters = {"payload": f"word = {SECRET}", "header": f"tenant = {SECRET}"}

    for name, value in filters.items():
        assert "cannot be filters" in client.get("/messages", params={name: value}).text
    assert client.get("/v1/messages", params={"path": f'$.word ? (@ == "{SECRET}")'}).status_code == 422
    assert client.get("/v1/messages", params={"header": filters["header"]}).status_code == 422
    assert client.get(f"/messages/{waiting}/edit").headers["location"] == f"/messages/{waiting}?result=redacted"
    assert f"/messages/{waiting}/edit" not in client.get(f"/messages/{waiting}").text
    assert 'id="edit"' not in client.get("/schedules/nightly").text


@pytest.mark.parametrize(("name", "problem"), [("nothing", "has no function nothing"), ("SECRET", "is not a function")])
def test_a_function_that_cannot_be_used_is_an_error_at_the_start(name: str, problem: str) -> None:
    web = WebSettings(redact=f"tests.api.redactions:{name}")

    with pytest.raises(ConfigError, match=problem):
        find_redact(Config(web=web, handlers=HandlersSettings(allowed_modules=["tests"])))


def test_a_payload_that_looks_encrypted_is_redacted_too(open_site: Open, queue: Queue) -> None:
    header = envelope.EnvelopeHeader(1, bytes(8), "key", "mail", bytes(16), bytes(12))
    forged = envelope.to_json(bytes(header) + b"content", SECRET)
    published = queue.publish("mail", payload=Jsonb(json.loads(forged)))

    assert SECRET in open_site(None, "viewer").get(f"/messages/{published}").text
    assert SECRET not in open_site("replace", "viewer").get(f"/messages/{published}").text
