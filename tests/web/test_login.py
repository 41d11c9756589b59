"""Login by a provider of OpenID Connect in a real browser, whose site is another than that of the dashboard."""

from __future__ import annotations

import socket

from playwright.sync_api import Browser, expect

from tests.server.oidc_provider import CLIENT_ID, CLIENT_SECRET, OidcProvider
from tests.server.postgres import Database
from tests.web.accessible import page_complaints
from tests.web.site import Site, Visitor


def test_a_user_logs_in_at_the_provider_and_comes_to_the_page_that_was_asked_for(
    browser: Browser, shown: Database
) -> None:
    """The session's cookie is one that browsers do not send on the way from another site."""
    provider = OidcProvider()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    oidc = {
        "issuer": provider.issuer,
        "client_id": CLIENT_ID,
        "client_secret": CLIENT_SECRET,
        "access": [{"group": "oncall", "roles": ["operator"]}],
    }
    site = Site(shown.dsn, listen=address, url=f"http://{address}", oidc=oidc)
    visitor = Visitor(browser, site)
    try:
        page = visitor.open("/messages?topic=mail&state=dead")
        expect(page.get_by_label("Or with a token")).to_be_visible()
        assert page_complaints(page, "/login", "wide") == []
        page.get_by_role("link", name="Log in with single sign-on").click()
        page.get_by_role("link", name="Log in").click()

        expect(page.get_by_text("oidc:ada@example.com")).to_be_visible()
        assert page.url == f"{site.url}/messages?topic=mail&state=dead"
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_role("link", name="Log in with single sign-on")).to_be_visible()
        assert visitor.leave() == []
    finally:
        site.stop()
        provider.stop()
