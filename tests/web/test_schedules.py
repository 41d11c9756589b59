"""Schedules."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.sql.queue import Queue
from tests.web.site import Visitor


def test_the_list_shows_the_next_and_the_last_run_of_each_schedule(visitor: Visitor, queue: Queue) -> None:
    queue.schedule("nightly", "0 3 * * *", topic="reports", time_zone="Europe/Berlin")
    queue.call("run_schedule", "nightly")

    page = visitor.open("/schedules")

    row = page.get_by_role("row", name="nightly")
    expect(row.locator("[data-label=When]")).to_have_text("0 3 * * * Europe/Berlin")
    expect(row.locator("[data-label=Next]")).to_contain_text("in ")
    expect(row.locator("[data-label=Last]")).to_contain_text("#1")


def test_an_empty_list_explains_schedules(visitor: Visitor) -> None:
    page = visitor.open("/schedules")

    expect(page.locator("#list")).to_contain_text("No schedule yet")


def test_a_schedule_shows_its_next_five_runs_and_its_history(visitor: Visitor, queue: Queue) -> None:
    queue.schedule("nightly", "0 3 * * *", topic="reports")
    queue.call("run_schedule", "nightly")

    page = visitor.open("/schedules/nightly")

    expect(page.locator("#ticks tbody tr")).to_have_count(5)
    expect(page.locator("#ticks")).to_contain_text("03:00:00")
    expect(page.locator("#runs tbody tr")).to_have_count(1)
    expect(page.locator("#runs")).to_contain_text("published")


def test_run_now_publishes_its_message_and_pause_stops_it(visitor: Visitor, queue: Queue) -> None:
    queue.schedule("nightly", "0 3 * * *", topic="reports")
    page = visitor.open("/schedules/nightly")

    page.get_by_role("button", name="Run now").click()
    expect(page.locator("#toasts")).to_contain_text("is published.")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#ticks")).to_contain_text("None while it is paused.")
    paused = queue.scheduled("nightly")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("#ticks tbody tr")).to_have_count(5)

    assert queue.value("SELECT topic FROM messages.message") == "reports"
    assert (paused.paused_by, queue.scheduled("nightly").paused_at) == ("local", None)


def test_a_schedule_is_added_after_a_preview_of_its_next_runs(visitor: Visitor, queue: Queue) -> None:
    visitor.expected = ["422"]
    page = visitor.open("/schedules")

    page.get_by_role("button", name="Add a schedule").click()
    page.get_by_label("Name").fill("weekly")
    page.get_by_label("Topic", exact=True).fill("reports")
    page.get_by_label("Cron").fill("61 * * * *")
    expect(page.locator("#next .note-bad")).to_be_visible()
    page.get_by_label("Cron").fill("0 4 * * mon")
    expect(page.locator("#next li")).to_have_count(5)
    page.get_by_label("Payload").fill("{broken")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.locator("#toasts")).to_contain_text("the payload is not JSON")
    page.get_by_label("Payload").fill('{"week": true}')
    page.get_by_role("button", name="Add", exact=True).click()
    page.wait_for_url("**/schedules/weekly")

    added = queue.scheduled("weekly")
    assert (added.cron, added.topic, added.payload, added.time_zone) == (
        "0 4 * * mon",
        "reports",
        {"week": True},
        "UTC",
    )


def test_a_schedule_is_removed_after_a_confirmation(visitor: Visitor, queue: Queue) -> None:
    queue.schedule("nightly", "0 3 * * *", topic="reports")
    page = visitor.open("/schedules/nightly")

    page.get_by_role("button", name="Remove").click()
    expect(page.get_by_role("dialog")).to_contain_text("Messages that it published stay.")
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    page.wait_for_url("**/schedules")

    assert queue.scheduled("nightly") is None
