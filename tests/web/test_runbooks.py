"""The page of the runbooks, and the links that lead to it."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from pgrouse.alerts.runbooks import path
from pgrouse.doctor import CODES
from tests.sql.queue import Queue
from tests.web import sample_data
from tests.web.accessible import complaints
from tests.web.site import Site, Visitor


@pytest.mark.long
def test_every_runbook_is_a_place_on_the_page(visitor: Visitor) -> None:
    page = visitor.open("/runbooks")

    for code in CODES:
        expect(page.locator(f"#{str(path(code)).partition('#')[2]}")).to_have_count(1)
    expect(page.locator("article")).to_contain_text("pgrouse dead group --since 1d")
    for href in page.locator("article a").evaluate_all("links => links.map(each => each.getAttribute('href'))"):
        expect(page.locator(href)).to_have_count(1)


@pytest.mark.long
def test_the_navigation_leads_to_the_page_and_its_contents_to_each_runbook(visitor: Visitor) -> None:
    page = visitor.open("/")
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Runbooks").click()

    page.get_by_role("navigation", name="Runbooks").get_by_role("link", name="Lost locks").click()

    expect(page.locator("#lost-locks")).to_be_in_viewport()
    assert page.locator("nav[aria-label=Runbooks] a").count() == page.locator("article h2").count()


def test_a_problem_leads_to_its_runbook(visitor: Visitor, queue: Queue) -> None:
    queue.conn.execute(
        "INSERT INTO messages.condition (kind, topic, what, fix, since) VALUES ('backlog', 'mail', 'old', 'fix', now())"
    )
    page = visitor.open("/")

    page.get_by_role("link", name="Runbook backlog").click()

    expect(page.locator("#old-backlog")).to_be_in_viewport()


@pytest.mark.long
def test_a_finding_of_the_doctor_leads_to_its_runbook(visitor: Visitor, queue: Queue) -> None:
    sample_data.worker(queue, topics=("mail",))
    queue.publish("unhandled")
    queue.conn.execute("UPDATE messages.message SET available_at = now() - interval '1 day'")
    page = visitor.open("/doctor?now=1")

    link = page.get_by_role("link", name="Runbook unhandled_topics")

    expect(link).to_have_attribute("href", str(path("unhandled_topics")))


@pytest.mark.long
def test_runbooks_need_no_token_and_no_database(site: Site, as_token: Any) -> None:
    as_token("viewer")
    alone = Site("postgresql://127.0.0.1:1/nothing")
    try:
        unknown = {"accept": "text/html", "Authorization": "Bearer pgrouse_wrong"}
        pages = [httpx.get(f"{each.url}/runbooks", headers=unknown) for each in (site, alone)]
    finally:
        alone.stop()

    assert [page.status_code for page in pages] == [200, 200]
    assert [('id="pages"' in page.text, "Database unreachable" in page.text) for page in pages] == [(False, True)] * 2


@pytest.mark.long
def test_the_page_is_accessible(visitor: Visitor) -> None:
    assert complaints(visitor, "/runbooks") == []
