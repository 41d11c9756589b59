"""Schedules."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from tests.sql.queue import Queue
from tests.web.site import NARROW, Site, Visitor


@pytest.mark.long
def test_the_list_shows_the_next_and_the_last_run_of_each_schedule(visitor: Visitor, queue: Queue) -> None:
    queue.schedule("nightly", "0 3 * * *", topic="reports", time_zone="Europe/Berlin")
    queue.call("run_schedule", "nightly")

    page = visitor.open("/schedules")

    row = page.get_by_role("row", name="nightly")
    expect(row.locator("[data-label=When]")).to_have_text("At 03:00 0 3 * * * Europe/Berlin")
    expect(row.locator("[data-label=Next]")).to_contain_text("in ")
    expect(row.locator("[data-label=Last]")).to_contain_text(re.compile(r"ago 1\b"))


@pytest.mark.long
def test_an_empty_list_explains_schedules(visitor: Visitor) -> None:
    page = visitor.open("/schedules")

    expect(page.locator("#list")).to_contain_text("No schedules yet")


def test_a_schedule_shows_its_next_five_runs_and_its_history(visitor: Visitor, queue: Queue) -> None:
    queue.schedule("nightly", "0 3 * * *", topic="reports")
    queue.call("run_schedule", "nightly")

    page = visitor.open("/schedules/nightly")

    expect(page.locator("#ticks tbody tr")).to_have_count(5)
    expect(page.locator("#ticks")).to_contain_text("03:00:00")
    expect(page.locator("#runs tbody tr")).to_have_count(1)
    expect(page.locator("#runs")).to_contain_text("ready")


@pytest.mark.long
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


@pytest.mark.long
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
    expect(page.locator("#next")).to_contain_text("At 04:00, only on Monday")
    page.get_by_label("Payload").fill("{broken")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.locator("#toasts")).to_contain_text("payload is not JSON")
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


@pytest.mark.long
def test_a_schedule_is_edited_and_a_mistake_is_told(visitor: Visitor, queue: Queue) -> None:
    visitor.expected = ["422"]
    queue.schedule("nightly", "0 3 * * *", topic="reports", time_zone="Europe/Berlin", key="k")
    queue.conn.execute(
        """UPDATE messages.schedule SET payload = '{"n": 9007199254740993}',
        declared_by = 'pgrouse.toml', missed_limit = 7,
             headers = jsonb_build_object('note', repeat('x', 20000))"""
    )
    before = queue.scheduled("nightly").next_tick
    page = visitor.open("/schedules/nightly")

    page.get_by_role("button", name="Edit").click()
    dialog = page.get_by_role("dialog", name="Edit nightly")
    expect(dialog).to_contain_text("declared by pgrouse.toml")
    dialog.get_by_label("Cron").fill("61 * * * *")
    dialog.get_by_role("button", name="Save").click()
    expect(page.locator("#toasts")).to_contain_text("61")
    dialog.get_by_label("Cron").fill("30 5 * * *")
    expect(dialog.locator("#next li").first).to_contain_text("05:30:00")
    dialog.get_by_role("button", name="Save").click()
    expect(page.locator("#facts")).to_contain_text("30 5 * * *")

    edited = queue.scheduled("nightly")
    assert (edited.topic, edited.time_zone, edited.key) == ("reports", "Europe/Berlin", "k")
    assert (edited.missed_limit, edited.headers) == (7, {"note": "x" * 20_000})
    assert queue.value("SELECT payload::text FROM messages.schedule") == '{"n": 9007199254740993}'
    assert edited.next_tick != before


@pytest.mark.long
def test_a_payload_that_is_too_long_to_be_edited_stays(visitor: Visitor, queue: Queue) -> None:
    queue.schedule("nightly", "0 3 * * *", topic="reports")
    queue.conn.execute("UPDATE messages.schedule SET payload = jsonb_build_object('x', repeat('y', 20000))")
    page = visitor.open("/schedules/nightly")

    page.get_by_role("button", name="Edit").click()
    page.get_by_role("dialog").get_by_label("Topic", exact=True).fill("other")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#facts")).to_contain_text("other")

    assert len(queue.scheduled("nightly").payload["x"]) == 20_000


def test_the_preview_says_in_words_when_an_expression_with_seconds_runs_and_what_to_write_instead(
    site: Site, queue: Queue, as_token: Any
) -> None:
    headers = as_token("viewer") | {"accept": "text/html"}

    good, bad = (
        httpx.get(f"{site.url}/schedules/next", headers=headers, params={"cron": cron}).text
        for cron in ("*/10 * * * * *", "60 * * * * *")
    )

    assert ("Every 10 seconds" in good, good.count("<li>")) == (True, 5)
    assert "second is &#34;60&#34;" in bad
    assert "use * or 0 to 59" in bad


def test_ticks_are_skipped_while_the_topic_is_paused_if_the_form_says_so(
    site: Site, queue: Queue, as_token: Any
) -> None:
    headers = as_token("operator") | {"accept": "text/html"}
    form = {"name": "nightly", "cron": "@daily", "topic": "reports", "while_paused": "skip"}

    added = httpx.post(f"{site.url}/schedules", headers=headers, data=form).status_code
    skips = httpx.get(f"{site.url}/schedules/nightly", headers=headers).text
    edited = httpx.post(f"{site.url}/schedules/nightly", headers=headers, data=form | {"while_paused": "publish"})
    refused = httpx.post(f"{site.url}/schedules/nightly", headers=headers, data=form | {"while_paused": "wait"})

    assert (added, edited.status_code, refused.status_code) == (303, 303, 422)
    assert "<dt>While the topic is paused</dt><dd>nothing is published</dd>" in skips
    assert '<option value="skip" selected' in skips
    assert queue.scheduled("nightly").while_paused == "publish"


def test_a_form_says_what_messages_have_instead_of_their_topic(site: Site, queue: Queue, as_token: Any) -> None:
    headers = as_token("operator") | {"accept": "text/html"}
    form = {"name": "own", "cron": "@daily", "topic": "reports", "max_attempts": "3", "timeout": "30s"}
    form |= {"backoff": '{"kind": "constant", "base": "1m"}', "retention": "90d"}

    added = httpx.post(f"{site.url}/schedules", headers=headers, data=form)
    shown = httpx.get(f"{site.url}/schedules/own", headers=headers).text
    refused = [
        httpx.post(f"{site.url}/schedules/own", headers=headers, data=form | wrong).status_code
        for wrong in ({"max_attempts": "many"}, {"timeout": "soon"}, {"backoff": "{"}, {"retention": "1s"})
    ]
    found = queue.scheduled("own")
    cleared = httpx.post(f"{site.url}/schedules/own", headers=headers, data=form | {"timeout": "", "backoff": ""})

    assert (added.status_code, cleared.status_code, refused) == (303, 303, [422] * 4)
    assert "<dt>Timeout</dt><dd>30s</dd>" in shown
    assert 'value="90d"' in shown
    assert (found.max_attempts, found.timeout, found.retention) == (3, timedelta(seconds=30), timedelta(days=90))
    assert found.backoff == {"kind": "constant", "base": "1m"}
    assert (queue.scheduled("own").timeout, queue.scheduled("own").backoff) == (None, None)


def test_a_schedule_is_moved_only_between_topics_of_the_token(site: Site, queue: Queue, as_token: Any) -> None:
    queue.schedule("mine", "0 3 * * *", topic="mail")
    queue.schedule("other", "0 3 * * *", topic="orders")
    headers = as_token("operator", topics=("mail*",)) | {"accept": "text/html"}

    sent = [
        httpx.post(f"{site.url}/schedules/{name}", headers=headers, data={"cron": "@daily", "topic": topic}).status_code
        for name, topic in (("mine", "orders"), ("other", "mail"), ("gone", "mail"), ("mine", "mail.send"))
    ]

    assert sent == [403, 404, 404, 303]
    assert (queue.scheduled("mine").topic, queue.scheduled("other").topic) == ("mail.send", "orders")


@pytest.mark.long
def test_a_schedule_is_removed_after_a_confirmation(visitor: Visitor, queue: Queue) -> None:
    queue.schedule("nightly", "0 3 * * *", topic="reports")
    page = visitor.open("/schedules/nightly")

    page.get_by_role("button", name="Remove").click()
    expect(page.get_by_role("dialog")).to_contain_text("Messages that it published stay.")
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    page.wait_for_url("**/schedules")

    assert queue.scheduled("nightly") is None


def test_the_list_shows_what_became_of_the_messages_of_the_last_runs(visitor: Visitor, queue: Queue) -> None:
    queue.schedule("nightly", "0 3 * * *", topic="reports")
    done, dead, redriven = (queue.row("SELECT * FROM messages.run_schedule('nightly')").id for _ in range(3))
    queue.settle("complete", queue.claim("reports", limit=1))
    queue.settle("fail", queue.claim("reports"), ["boom"] * 2)
    queue.rows("SELECT * FROM messages.redrive(%s)", [[redriven]])

    page = visitor.open("/schedules")

    runs = page.locator(".outcomes a")
    expect(runs).to_have_text([re.compile("^success, "), re.compile("^failed, "), re.compile("^ready, ")])
    expect(runs.nth(1)).to_have_attribute("href", f"/messages/{dead}")
    page.goto("/schedules/nightly")
    expect(page.locator("#runs .badge")).to_have_text(["ready", "failed", "success"])
    page.set_viewport_size(NARROW)
    assert page.locator("#runs .badge").evaluate_all("all => all.every(e => e.getBoundingClientRect().right < 400)")
    assert done
