"""The list of topics."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.sql.queue import Queue
from tests.web import sample_data
from tests.web.site import NARROW, Visitor, is_live, overflow


@pytest.mark.long
def test_each_topic_shows_its_counts_its_rates_and_its_state(visitor: Visitor, queue: Queue) -> None:
    sample_data.busy(queue)

    page = visitor.open("/topics")

    mail = page.get_by_role("row", name="mail")
    expect(mail).to_contain_text("on")
    expect(mail.locator("[data-label=Ready]")).to_have_text("13")
    expect(mail.locator("[data-label=Running]")).to_have_text("2")
    expect(mail.locator("[data-label='Dead, 24h']")).to_have_text("1")
    expect(mail.locator("[data-label=Rate]")).to_have_text(re.compile(r"/s$"))
    expect(mail.locator("svg.spark")).to_be_visible()
    expect(page.get_by_role("row", name="no.handler")).to_contain_text("no worker")


def test_pause_in_a_row_stops_claims_and_resume_restarts_them(visitor: Visitor, queue: Queue) -> None:
    sample_data.worker(queue)
    queue.publish("mail")
    page = visitor.open("/topics")

    page.get_by_role("button", name="Pause mail").click()
    expect(page.locator("#toasts")).to_contain_text("mail is paused.")
    expect(page.get_by_role("row", name="mail")).to_contain_text("paused")
    while_paused = queue.claim("mail")
    page.get_by_role("button", name="Resume mail").click()
    expect(page.get_by_role("button", name="Pause mail")).to_be_visible()

    assert while_paused == []
    assert len(queue.claim("mail")) == 1
    assert queue.value("SELECT array_agg(action ORDER BY id) FROM messages.audit WHERE actor = 'local'") == [
        "pause",
        "resume",
    ]


@pytest.mark.long
def test_all_topics_are_paused_after_a_confirmation(visitor: Visitor, queue: Queue) -> None:
    queue.publish("mail")
    page = visitor.open("/topics")

    page.get_by_role("button", name="Pause all…").click()
    page.get_by_role("button", name="Cancel").click()
    untouched = queue.value("SELECT paused_at IS NULL FROM messages.topic WHERE topic = '*'")
    page.get_by_role("button", name="Pause all…").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause all").click()
    expect(page.locator("#all")).to_contain_text("every topic is paused by local")

    assert untouched
    assert queue.claim("mail") == []


def test_a_filter_shows_topics_whose_name_contains_it(visitor: Visitor, queue: Queue) -> None:
    for topic in ("mail.send", "mail.bounce", "orders"):
        queue.publish(topic)

    page = visitor.open("/topics?q=MAIL")

    expect(page.locator("tbody tr")).to_have_count(2)


def test_an_empty_list_explains_how_a_topic_is_created(visitor: Visitor) -> None:
    page = visitor.open("/topics")

    expect(page.locator("#list")).to_contain_text("No topics yet")


@pytest.mark.long
def test_many_topics_are_shown_up_to_a_limit_even_on_a_narrow_screen(visitor: Visitor, queue: Queue) -> None:
    queue.conn.execute(
        "INSERT INTO messages.message (topic, payload) SELECT 'topic-' || n, '1' FROM generate_series(1, 250) AS n"
    )

    page = visitor.open("/topics", size=NARROW)

    expect(page.locator("tbody tr")).to_have_count(200)
    expect(page.locator("#list")).to_contain_text("50 more")
    assert overflow(page) == 0


@pytest.mark.long
def test_a_row_keeps_its_height_when_its_line_appears(visitor: Visitor, queue: Queue) -> None:
    sample_data.worker(queue)
    queue.publish("mail")
    page = visitor.open("/topics")
    row = page.locator("#list tbody tr")
    height = row.evaluate("row => row.getBoundingClientRect().height")
    is_live(page)

    sample_data.measured(queue)

    expect(row.locator(".spark")).to_be_visible()
    assert row.evaluate("row => row.getBoundingClientRect().height") == height
