"""The pages of the audit log and of the doctor."""

from __future__ import annotations

import re

import httpx
import pytest
from playwright.sync_api import expect

from tests.sql.queue import Queue
from tests.web.accessible import complaints
from tests.web.site import Site, Visitor, is_live

ROWS = "tbody tr"


@pytest.mark.long
def test_an_empty_log_explains_its_content(visitor: Visitor) -> None:
    expect(visitor.open("/audit").locator(".empty")).to_contain_text("No actions yet")


@pytest.mark.long
def test_the_log_shows_actor_action_object_and_old_and_new_values(visitor: Visitor, queue: Queue) -> None:
    queue.policy("mail", max_attempts=3)
    queue.policy("mail", max_attempts=5)
    published = queue.publish("mail")
    queue.call("cancel", [published], "<b>by mistake</b>")

    page = visitor.open("/audit")

    cancelled, changed, _ = page.locator(ROWS).all()
    expect(cancelled).to_contain_text("<b>by mistake</b>")
    expect(cancelled.get_by_role("link", name=str(published), exact=True)).to_be_visible()
    expect(changed.locator("del")).to_contain_text("3")
    expect(changed.locator("ins")).to_contain_text("5")


@pytest.mark.long
def test_filters_narrow_the_log_even_to_one_of_many_messages(visitor: Visitor, queue: Queue) -> None:
    ids = queue.publish_many(3)
    queue.call("cancel", ids)
    queue.call("pause", "mail")

    page = visitor.open("/audit")
    page.get_by_label("Target").fill(str(ids[1]))
    page.keyboard.press("Enter")

    page.wait_for_url("**target=*")
    expect(page.locator(ROWS)).to_have_count(1)
    expect(page.locator(ROWS)).to_contain_text("cancel")
    expect(visitor.open("/audit?topic=mail&action=pause&since=1h").locator(ROWS)).to_have_count(1)
    expect(visitor.open("/audit?actor=unknown").locator(".empty")).to_contain_text("No action matches")


@pytest.mark.long
def test_an_action_is_found_by_its_name_as_it_is_shown(visitor: Visitor, queue: Queue) -> None:
    queue.policy("mail", max_attempts=5)
    page = visitor.open("/audit")
    name = page.locator(f"{ROWS} th").inner_text()

    page.get_by_label("Action", exact=True).fill(name)
    page.keyboard.press("Enter")

    page.wait_for_url("**action=*")
    expect(page.locator(ROWS)).to_have_count(1)
    assert page.locator("#known-actions option").evaluate_all("each => each.map(o => o.value)") == [name]
    expect(page.locator(f"{ROWS} td").first).to_contain_text(re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"))


@pytest.mark.long
def test_pages_reach_the_first_action(visitor: Visitor, queue: Queue) -> None:
    for number in range(60):
        queue.call("pause", f"topic-{number}")

    page = visitor.open("/audit")
    expect(page.locator(ROWS)).to_have_count(50)
    page.get_by_role("link", name="Older").click()
    expect(page.locator(ROWS)).to_have_count(10)
    expect(page.locator(ROWS).last).to_contain_text("topic-0")


def test_an_invalid_filter_is_reported(site: Site, queue: Queue) -> None:
    for query in ("since=yesterday", "before=x"):
        assert httpx.get(f"{site.url}/audit?{query}", headers={"accept": "text/html"}).status_code == 422


@pytest.mark.long
def test_the_doctor_page_shows_problems_and_fixes(visitor: Visitor, queue: Queue) -> None:
    queue.publish("no.handler")

    page = visitor.open("/doctor")

    expect(page.locator(".findings li").first).to_be_visible(timeout=30_000)
    expect(page.locator("#findings")).to_contain_text("checks found a problem")
    expect(page.locator(".findings li pre").first).to_be_visible()
    passed = page.locator("#findings details", has_text="checks passed")
    expect(passed.locator("li").first).not_to_be_visible()
    passed.locator("summary").first.click()
    expect(passed.locator("li").first).to_be_visible()


@pytest.mark.long
def test_the_pages_are_accessible(visitor: Visitor, queue: Queue) -> None:
    queue.policy("mail", max_attempts=3)

    assert complaints(visitor, "/audit") + complaints(visitor, "/doctor") == []


@pytest.mark.long
def test_a_new_action_appears_by_itself_on_a_page_of_a_chosen_size(visitor: Visitor, queue: Queue) -> None:
    for _ in range(26):
        queue.call("cancel", [queue.publish()])
    page = visitor.open("/audit?size=25")
    is_live(page)
    expect(page.locator("#found tbody tr")).to_have_count(25)

    queue.call("pause", "mail", "the disk is full")

    expect(page.locator("#found tbody tr").first).to_contain_text("the disk is full")
    page.get_by_role("link", name="Older").click()
    expect(page.locator("#found tbody tr")).to_have_count(2)
