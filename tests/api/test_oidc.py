"""Login by a provider of OpenID Connect: who is let in, as whom, and what cannot be forged."""

from __future__ import annotations

import re
import socket
import sys
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from joserfc.jwk import OctKey, RSAKey

from pgrouse.config.config import Config, WebSettings
from pgrouse.errors import ConfigError
from pgrouse.web.access import token_cache
from pgrouse.web.access.oidc import OidcLogin
from tests.api.site import Site
from tests.server.oidc_provider import CLIENT_ID, CLIENT_SECRET, OidcProvider
from tests.server.postgres import Database
from tests.sql.queue import Queue

ACCESS = [
    {"group": "oncall", "roles": ["operator"], "topics": ["mail.**"]},
    {"group": "staff", "roles": ["viewer", "publisher"]},
]


def oidc(issuer: str, **more: Any) -> dict[str, Any]:
    """Return the table `[web.oidc]`."""
    client = {"client_id": CLIENT_ID, "client_secret": CLIENT_SECRET}
    return {"issuer": issuer, **client, "label": "the company", "access": ACCESS, **more}


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture(scope="module")
def running_provider() -> Iterator[OidcProvider]:
    provider = OidcProvider()
    yield provider
    provider.stop()


@pytest.fixture
def provider(running_provider: OidcProvider) -> OidcProvider:
    running_provider.reset()
    return running_provider


@pytest.fixture(scope="module")
def site(site_database: Database, running_provider: OidcProvider) -> Iterator[Site]:
    """A server without a token."""
    address = free_address()
    site = Site(site_database, listen=address, url=f"http://{address}", oidc=oidc(running_provider.issuer))
    yield site
    site.stop()


@pytest.fixture
def browser(site: Site) -> Iterator[httpx.Client]:
    site.app.state.token_cache._failures.clear()
    with site.client(headers={"accept": "text/html"}) as client:
        yield client


def way_back(browser: httpx.Client, wanted: str = "/") -> str:
    """Log in at the provider; return where it leads back to."""
    begun = browser.get("/login/oidc", params={"next": wanted})
    assert begun.status_code == 303, begun.text
    page = httpx.get(begun.headers["location"])
    return re.findall(r'href="([^"]+)"', page.text)[0]


def log_in(browser: httpx.Client, wanted: str = "/") -> httpx.Response:
    return browser.get(way_back(browser, wanted))


def is_logged_in(browser: httpx.Client) -> bool:
    return browser.get("/v1/topics").status_code == 200


def test_a_user_has_the_rights_of_the_group_and_is_named_in_the_audit(
    browser: httpx.Client, provider: OidcProvider, queue: Queue
) -> None:
    assert log_in(browser, "/topics").headers["refresh"] == "0;url=/topics"

    page = browser.get("/topics").text
    (csrf,) = set(re.findall(r'name="csrf" (?:value|content)="([^"]+)"', page))
    assert "oidc:ada@example.com" in page
    origin = {"origin": str(browser.base_url).rstrip("/")}
    paused = [
        browser.post(f"/topics/{topic}/pause", data={"reason": "x", "csrf": csrf}, headers=origin).status_code
        for topic in ("mail.send", "other")
    ]
    assert paused == [303, 403]
    recorded = queue.rows("SELECT actor, action, target FROM messages.audit ORDER BY id")
    assert [(row.actor, row.action, row.target) for row in recorded] == [
        ("oidc:ada@example.com", "log_in", "oidc:ada@example.com"),
        ("oidc:ada@example.com", "pause", None),
    ]


def test_a_change_needs_the_csrf_of_the_session_and_the_own_origin(
    browser: httpx.Client, provider: OidcProvider
) -> None:
    log_in(browser)

    forged = browser.post("/topics/mail.send/pause", data={"reason": "x"})
    foreign = browser.post("/topics/mail.send/pause", headers={"origin": provider.issuer})

    assert [forged.status_code, foreign.status_code] == [403, 403]
    assert foreign.json()["code"] == "other_origin"


def test_a_logout_ends_the_session_on_the_server(browser: httpx.Client, provider: OidcProvider) -> None:
    log_in(browser)
    kept = dict(browser.cookies)
    csrf = re.findall(r'name="csrf" value="([^"]+)"', browser.get("/topics").text)[0]

    assert browser.post("/logout", data={"csrf": csrf}).headers["location"] == "/login"

    browser.cookies.update(kept)
    assert not is_logged_in(browser)


def test_its_cookies_are_for_this_site_only_and_end(browser: httpx.Client, provider: OidcProvider) -> None:
    begun = browser.get("/login/oidc").headers["set-cookie"]
    done = log_in(browser).headers.get_list("set-cookie")

    assert re.search(r"^pgrouse_login=.*; HttpOnly; Max-Age=600; Path=/login/oidc; SameSite=lax$", begun)
    assert re.search(r"^pgrouse_session=.*; HttpOnly; Max-Age=43200; Path=/; SameSite=strict$", done[0])
    assert done[1].startswith('pgrouse_login=""')


@pytest.mark.parametrize("groups", [["visitors"], [], "visitors", None, {"oncall": True}, ["Oncall", 7]])
def test_a_user_in_no_known_group_is_not_let_in(browser: httpx.Client, provider: OidcProvider, groups: Any) -> None:
    """Nor is anyone on this machine, though there is no token."""
    provider.user["groups"] = groups

    answer = log_in(browser)

    assert answer.status_code == 403
    assert "[[web.oidc.access]]" in answer.text or "web.oidc.groups_claim" in answer.text
    assert not is_logged_in(browser)


def test_the_first_table_with_a_group_of_the_user_decides(browser: httpx.Client, provider: OidcProvider) -> None:
    """Rights of two groups would add up to more than either gives."""
    log_in(browser)

    refused = browser.post("/v1/messages", json={"topic": "mail.send", "payload": 1})

    assert refused.status_code == 403
    provider.user["groups"] = "staff"
    log_in(browser)
    csrf = re.findall(r'name="csrf" content="([^"]+)"', browser.get("/topics").text)[0]
    published = browser.post("/v1/messages", json={"topic": "other", "payload": 1}, headers={"x-csrf-token": csrf})
    assert published.status_code == 201


OTHER_KEY = RSAKey.generate_key(2048, {"kid": "1"})


@pytest.mark.parametrize(
    "changes",
    [
        {"nonce": "other"},
        {"aud": "other"},
        {"aud": ["other"], "azp": CLIENT_ID},
        {"iss": "http://localhost:1"},
        {"exp": int(time.time()) - 3600},
        {"iat": int(time.time()) + 36000},
        {"key": OTHER_KEY},
        {"key": OctKey.import_key(CLIENT_SECRET * 3), "alg": "HS256"},
        {"alg": "none"},
    ],
    ids="-".join,
)
def test_what_the_provider_did_not_say_here_and_now_is_not_believed(
    browser: httpx.Client, provider: OidcProvider, changes: dict[str, Any]
) -> None:
    provider.changes = changes

    answer = log_in(browser)

    assert (answer.status_code, is_logged_in(browser)) == (403, False)


def test_clocks_may_differ_by_half_a_minute(browser: httpx.Client, provider: OidcProvider) -> None:
    provider.changes = {"iat": int(time.time()) + 30, "nbf": int(time.time()) + 30}
    assert log_in(browser).status_code == 200
    provider.changes = {"exp": int(time.time()) - 30}
    assert log_in(browser).status_code == 200


def test_an_answer_is_worth_nothing_in_another_browser_or_twice(
    browser: httpx.Client, provider: OidcProvider, site: Site
) -> None:
    with site.client() as victim:
        assert victim.get(way_back(browser)).status_code == 400
        # Not with a login of its own either: the code belongs to the verifier of the other.
        stolen = parse_qs(urlsplit(way_back(browser)).query)["code"][0]
        own = parse_qs(urlsplit(way_back(victim)).query)["state"][0]
        assert victim.get("/login/oidc/callback", params={"code": stolen, "state": own}).status_code == 403
        assert not is_logged_in(victim)
    back = way_back(browser)
    assert [browser.get(back).status_code, browser.get(back).status_code] == [200, 400]


@pytest.mark.parametrize("wanted", ["https://evil.example.com", "//evil.example.com", "/\\evil.example.com", "topics"])
def test_a_login_leads_to_no_other_site(browser: httpx.Client, provider: OidcProvider, wanted: str) -> None:
    answer = log_in(browser, wanted)

    assert (answer.headers["refresh"], "evil" in answer.text) == ("0;url=/", False)


def test_a_refusal_of_the_provider_is_shown_to_who_asked_it(browser: httpx.Client, provider: OidcProvider) -> None:
    refusal = {"error": "access_denied", "error_description": "<b>no</b>"}

    way_back(browser)
    forged = browser.get("/login/oidc/callback", params={**refusal, "state": "x"})
    state = parse_qs(urlsplit(way_back(browser)).query)["state"][0]
    shown = browser.get("/login/oidc/callback", params={**refusal, "state": state})

    assert (forged.status_code, "access_denied" in forged.text) == (400, False)
    assert shown.status_code == 403
    assert "the company refused the login (access_denied: &lt;b&gt;no&lt;/b&gt;)" in shown.text


def test_groups_may_come_from_userinfo_about_the_same_user(browser: httpx.Client, provider: OidcProvider) -> None:
    del provider.user["groups"]
    provider.userinfo = {"sub": "8", "groups": ["staff"]}
    assert log_in(browser).status_code == 503
    assert not is_logged_in(browser)

    provider.userinfo = {"sub": "7", "groups": ["staff"]}
    log_in(browser)
    assert is_logged_in(browser)


@pytest.mark.parametrize(
    ("user", "name"),
    [({"email_verified": False}, "oidc:7"), ({"email": None}, "oidc:7"), ({"email": "a\u200bb"}, "oidc:7")],
)
def test_an_email_that_is_not_verified_or_not_printable_names_nobody(
    browser: httpx.Client, provider: OidcProvider, user: dict[str, Any], name: str
) -> None:
    provider.user |= user

    log_in(browser)

    assert f'<span class="who small soft">{name}</span>' in browser.get("/topics").text


def test_many_refused_logins_are_limited_as_wrong_tokens_are(
    browser: httpx.Client, provider: OidcProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    # None of those beyond the limit has its turn in time.
    monkeypatch.setattr(token_cache, "MAX_THROTTLE_WAIT_S", -1.0)

    codes = [browser.get("/login/oidc/callback").status_code for _ in range(token_cache.MAX_FAILURES + 1)]

    assert codes == [400] * token_cache.MAX_FAILURES + [429]


@pytest.mark.parametrize("issuer", ["http://localhost:1", "same/"])
def test_a_provider_that_is_away_or_another_is_said_and_lets_nobody_in(
    site_database: Database, provider: OidcProvider, issuer: str
) -> None:
    given = issuer.replace("same", provider.issuer)
    site = Site(site_database, url="http://127.0.0.1:1", oidc=oidc(given))
    try:
        with site.client(headers={"accept": "text/html"}) as client:
            answer = client.get("/login/oidc")
        assert answer.status_code == 503
        assert "the company does not answer as expected" in answer.text
    finally:
        site.stop()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "authlib.integrations.starlette_client", None)
    web = WebSettings.model_validate({"url": "http://127.0.0.1:1", "oidc": oidc("https://login.example.com")})

    with pytest.raises(ConfigError, match=r"pip install 'pgrouse\[oidc\]'"):
        OidcLogin(Config(web=web))


@pytest.mark.parametrize(
    ("web", "problem"),
    [
        ({"oidc": oidc("https://a.example.com")}, "oidc needs web.url"),
        ({"url": "http://a", "oidc": oidc("http://a.example.com")}, "expected an address like"),
        ({"url": "http://a", "oidc": oidc("https://a.example.com", access=[])}, "at least 1 item"),
        (
            {"url": "http://a", "oidc": oidc("https://a.example.com", access=[{"group": "g", "roles": ["king"]}])},
            "Input should be",
        ),
    ],
)
def test_a_configuration_that_would_let_in_the_wrong_ones_is_refused(web: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as error:
        WebSettings.model_validate(web)
    assert CLIENT_SECRET not in str(error.value)
