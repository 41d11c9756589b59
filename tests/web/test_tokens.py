"""The page of tokens."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from tests.sql.queue import Queue
from tests.web.accessible import complaints
from tests.web.site import Site, Visitor

HTML = {"accept": "text/html"}


@pytest.mark.long
def test_without_tokens_the_page_says_who_may_do_what(visitor: Visitor) -> None:
    expect(visitor.open("/tokens").locator("#list .empty")).to_contain_text("No tokens")


@pytest.mark.long
def test_a_token_is_listed_without_its_secret_and_revoked(visitor: Visitor, queue: Queue, as_token: Any) -> None:
    mine = as_token("operator")
    queue.conn.execute("SELECT messages.add_token('ci', sha256('x'), '{publisher}', '{mail*}', '30 days')")
    page = visitor.open("/tokens", extra_http_headers=mine)
    row = page.locator("tbody tr", has_text="ci")
    expect(row).to_contain_text("publisher")
    expect(row).to_contain_text("mail*")
    expect(row.locator(".badge")).to_have_text("valid")

    row.get_by_role("button", name="Revoke ci").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()

    expect(row.locator(".badge")).to_have_text("revoked")
    assert queue.value("SELECT revoked_at IS NOT NULL FROM messages.token WHERE name = 'ci'")
    assert mine["Authorization"].split()[1] not in page.content()


def test_tokens_are_for_tokens_of_all_topics_and_revoked_by_operators(site: Site, queue: Queue, as_token: Any) -> None:
    some, viewer = as_token("operator", topics=("mail*",)) | HTML, as_token("viewer", name="reader") | HTML

    assert httpx.get(f"{site.url}/tokens", headers=some).status_code == 403
    assert "Revoke" not in httpx.get(f"{site.url}/tokens", headers=viewer).text
    for headers in (some, viewer):
        assert httpx.post(f"{site.url}/tokens/revoke", headers=headers, data={"name": "test"}).status_code == 403


@pytest.mark.long
def test_the_page_is_accessible(visitor: Visitor, queue: Queue, as_token: Any) -> None:
    mine = as_token("viewer")
    queue.conn.execute("SELECT messages.add_token('ci', sha256('x'), '{publisher}', '{mail*}', '30 days')")
    queue.conn.execute("SELECT messages.revoke_token('ci')")

    assert complaints(visitor, "/tokens", extra_http_headers=mine) == []
