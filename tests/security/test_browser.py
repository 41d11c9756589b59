"""What a web page of an attacker can do to a dashboard on the visitor's machine, tried in a browser.

The page's own name leads to 127.0.0.1.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, sync_playwright

from tests.api.site import Site
from tests.server.postgres import Database
from tests.web.chromium import ARGUMENTS, CHROMIUM, NO_CHROMIUM

EVIL = "evil.test"
JSON = {"Content-Type": "application/json"}
# Every form of identification that is empty.
NOTHING = ["", " ", "\t", "Basic", "Basic ", "Basic Og==", "Bearer", "Bearer ", "Bearer  \t", "Negotiate x"]


@pytest.fixture(scope="module")
def local(shared: Database) -> Iterator[Site]:
    """A dashboard where a caller on this machine is the operator."""
    site = Site(shared)
    yield site
    site.stop()


@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    """A browser for which the name of another site leads here, as after DNS rebinding."""
    if not Path(CHROMIUM).exists():
        pytest.skip(NO_CHROMIUM)
    with sync_playwright() as playwright:
        # Newer browsers block such pages by themselves; that is no defence of pgrouse.
        rules = [f"--host-resolver-rules=MAP {EVIL} 127.0.0.1", "--disable-features=LocalNetworkAccessChecks"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*ARGUMENTS, *rules], timeout=90_000)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of another site, on the port of the dashboard. Its name leads there; the test sets its content."""
    with browser.new_context() as context:
        page = context.new_page()
        page.set_default_timeout(60_000)
        yield page


def visit(page: Page, origin: str) -> None:
    """Show a page of this origin."""

    def answer(route: Route) -> None:
        route.fulfill(status=200, content_type="text/html", body="<title>a harmless page</title>")

    page.route(f"{origin}/lure", answer)
    page.goto(f"{origin}/lure")


def fetched(page: Page, path: str, how: dict[str, Any]) -> int | str:
    """Return the status that the page's script sees, or the kind of its failure."""
    asked = (
        "async ([path, how]) => { try { return (await fetch(path, how)).status } catch (error) { return error.name } }"
    )
    status: int | str = page.evaluate(asked, [path, how])
    return status


def port(site: Site) -> str:
    return site.url.rsplit(":", 1)[1]


def test_a_page_whose_name_leads_here_reads_and_changes_nothing(page: Page, local: Site, shared: Database) -> None:
    visit(page, f"http://{EVIL}:{port(local)}")
    for headers in ({}, *({"Authorization": each} for each in NOTHING)):
        publish = {"method": "POST", "headers": headers | JSON, "body": '{"topic": "pwn", "payload": 1}'}

        seen = [
            fetched(page, path, {"headers": headers})
            for path in ("/v1/messages", "/v1/stats", "/", "/messages", "/metrics")
        ]
        wrote = fetched(page, "/v1/messages", publish)

        assert {*seen, wrote} <= {401, 421, 429}, (headers, seen, wrote)
        # That the server lives is told to all, by whatever name they call it.
        assert fetched(page, "/livez", {"headers": headers}) == 200
    with shared.connect() as conn:
        assert conn.execute("SELECT count(*) FROM messages.message AS m WHERE m.topic = 'pwn'").fetchone() == (0,)


def test_a_page_of_this_machine_itself_may_read_and_change(page: Page, local: Site) -> None:
    visit(page, local.url)
    publish = {"method": "POST", "headers": JSON, "body": '{"topic": "own", "payload": 1}'}

    assert fetched(page, "/v1/stats", {}) == 200
    assert fetched(page, "/v1/messages", publish) == 201


@pytest.mark.parametrize(
    "how", [{"mode": "no-cors"}, {"mode": "cors"}, {"headers": JSON}, {"headers": {"Authorization": ""} | JSON}]
)
def test_a_page_of_another_site_changes_nothing_by_calling_this_machine(
    page: Page, local: Site, shared: Database, how: dict[str, Any]
) -> None:
    visit(page, f"http://{EVIL}:{port(local)}")
    publish = {"method": "POST", "body": '{"topic": "pwn.cross", "payload": 1}', **how}

    fetched(page, f"{local.url}/v1/messages", publish)
    page.evaluate(
        """address => {
          const form = document.body.appendChild(document.createElement("form"))
          Object.assign(form, {method: "post", action: address, enctype: "text/plain"})
          const field = form.appendChild(document.createElement("input"))
          Object.assign(field, {name: '{"topic":"pwn.cross","payload":"', value: '"}'})
          form.submit()
        }""",
        f"{local.url}/v1/messages",
    )
    page.wait_for_url(f"{local.url}/**")

    with shared.connect() as conn:
        assert conn.execute("SELECT count(*) FROM messages.message AS m WHERE m.topic = 'pwn.cross'").fetchone() == (0,)
