"""The reference of the HTTP API: what a reader finds, and what its forms send."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect

from pgrouse.web.access import tokens
from tests.sql.queue import Queue
from tests.web.accessible import complaints
from tests.web.site import NARROW, Site, Visitor, overflow


def opened(page: Page, operation: str) -> None:
    page.goto(f"{page.url.partition('#')[0]}#{operation}")
    page.locator(f"#{operation} > .stack").wait_for()


@pytest.mark.long
def test_it_shows_parameters_types_examples_answers_and_the_role(visitor: Visitor, queue: Queue) -> None:
    page = visitor.open("/v1/docs")

    opened(page, "settle_message")

    shown = page.locator("#settle_message")
    for text in (
        "POST",
        "/v1/messages/{message_id}/settle",
        "Role: worker",
        "claim_id",
        "required",
        '"outcome": "complete"',
    ):
        expect(shown).to_contain_text(text)
    expect(shown.get_by_role("link", name="409")).to_have_attribute("href", "#status-409")
    expect(shown).to_contain_text('curl -X POST "$URL/v1/messages/{message_id}/settle"')


@pytest.mark.long
def test_each_link_within_it_leads_somewhere(visitor: Visitor, queue: Queue) -> None:
    page = visitor.open("/v1/docs")

    missing = page.evaluate(
        """[...document.querySelectorAll("main a[href^='#']")].map((link) => link.hash.slice(1))
             .filter((id) => !document.getElementById(id))"""
    )

    assert missing == []
    assert page.locator("main .operation[id]").count() > 90


def test_a_form_sends_its_operation_and_shows_the_response(visitor: Visitor, queue: Queue) -> None:
    page = visitor.open("/v1/docs")
    opened(page, "publish_message")
    form = page.locator("#publish_message .try")

    form.get_by_text("Try it").click()
    form.get_by_role("button", name="Send POST request").click()

    expect(form.locator("output")).to_contain_text("201")
    expect(form.locator("output")).to_contain_text('"outcome": "inserted"')
    assert queue.value("SELECT topic FROM messages.message") == "orders.created"


@pytest.mark.long
def test_path_and_query_of_a_form_are_sent(visitor: Visitor, queue: Queue) -> None:
    ids = [queue.publish("mail") for _ in range(3)]
    page = visitor.open("/v1/docs")
    opened(page, "get_message")
    shown, listed = page.locator("#get_message .try"), page.locator("#list_messages .try")

    shown.get_by_text("Try it").click()
    shown.get_by_label("message_id").fill(str(ids[1]))
    shown.get_by_label("message_id").press("Enter")
    opened(page, "list_messages")
    listed.get_by_text("Try it").click()
    listed.get_by_label("limit").fill("2")
    listed.get_by_label("limit").press("Enter")

    expect(shown.locator("output")).to_contain_text(f'"id": {ids[1]}')
    expect(listed.locator("output")).to_contain_text("200")
    assert listed.locator("output").inner_text().count('"topic": "mail"') == 2


@pytest.mark.long
def test_without_a_session_a_token_is_sent_and_not_kept(
    visitor: Visitor, site: Site, queue: Queue, eventually: Callable[..., Any]
) -> None:
    token = tokens.new()
    queue.value("SELECT messages.add_token('reader', %s, '{viewer}', '{*}')", [tokens.digest(token)])
    # For two seconds the server remembers that there was none.
    eventually(lambda: httpx.get(f"{site.url}/v1/topics").status_code == 401)
    visitor.expected.append("401")
    page = visitor.open("/v1/docs")
    opened(page, "list_topics")
    form = page.locator("#list_topics .try")
    form.get_by_text("Try it").click()
    send = form.get_by_role("button", name="Send GET request")

    send.click()
    expect(form.locator("output")).to_contain_text("401")
    page.get_by_label("Token for the requests of this page").fill(token)
    send.click()

    expect(form.locator("output")).to_contain_text("200")
    assert (
        page.evaluate("Object.values({...localStorage, ...sessionStorage}).filter((each) => each.startsWith('pgr_'))")
        == []
    )
    page.reload()
    expect(page.get_by_label("Token for the requests of this page")).to_have_value("")


@pytest.mark.long
@pytest.mark.parametrize("path", ["/v1/docs", "/v1/docs#publish_message"])
def test_it_is_accessible_wide_and_narrow_light_and_dark(visitor: Visitor, queue: Queue, path: str) -> None:
    assert complaints(visitor, path) == []


@pytest.mark.long
def test_it_fits_a_narrow_screen(visitor: Visitor, queue: Queue) -> None:
    page = visitor.open("/v1/docs", size=NARROW)
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")

    assert overflow(page) == 0


def test_it_is_small_and_readable_without_scripts(site: Site) -> None:
    answer = httpx.get(f"{site.url}/v1/docs")

    assert len(answer.content) < 500_000
    assert "<details" in answer.text
