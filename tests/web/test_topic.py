"""The page of a topic."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.sql.queue import Queue
from tests.web import sample_data
from tests.web.site import Site, Visitor


@pytest.mark.long
def test_the_page_shows_figures_charts_limits_and_channels(visitor: Visitor, queue: Queue) -> None:
    sample_data.busy(queue)
    queue.conn.execute("INSERT INTO messages.channel (topic, channel, concurrency) VALUES ('mail', 'customer-1', 3)")

    page = visitor.open("/topics/mail")

    expect(page.locator("#figures")).to_contain_text(re.compile(r"Running\s*2"))
    expect(page.locator("#throughput canvas")).to_be_visible()
    expect(page.locator("#limits")).to_contain_text(re.compile(r"max_concurrency\s*2 of 5"))
    expect(page.locator("#limits")).to_contain_text(re.compile(r"dequeue_rate\s*100 per second"))
    expect(page.locator("#channels tbody tr").first).to_contain_text(re.compile(r"customer-1\s*\d\s*3"))


@pytest.mark.long
def test_a_subscription_is_added_and_ended(visitor: Visitor, queue: Queue) -> None:
    visitor.expected = ["422"]
    queue.publish("mail")
    queue.publish("audit")
    page = visitor.open("/topics/mail")
    expect(page.locator("#subscriptions")).to_contain_text("No subscriptions")

    page.get_by_text("Add a subscriber").click()
    page.locator("#f-subscriber").fill("audit")
    page.get_by_role("button", name="Subscribe").click()

    expect(page.locator("#subscriptions")).to_contain_text("audit gets copies of these messages")
    other = visitor.open("/topics/audit")
    expect(other.locator("#subscriptions")).to_contain_text("copies of the messages of mail")
    other.get_by_text("Add a subscriber").click()
    other.locator("#f-subscriber").fill("mail")
    other.get_by_role("button", name="Subscribe").click()
    expect(other.locator("#toasts")).to_contain_text("circle")
    page.get_by_role("button", name="End the subscription of audit to mail").click()
    page.get_by_role("dialog").get_by_role("button", name="End").click()
    expect(page.locator("#subscriptions")).to_contain_text("No subscriptions")
    assert queue.rows("SELECT * FROM messages.subscription") == []


@pytest.mark.long
def test_a_subscription_needs_both_topics(site: Site, queue: Queue, as_token: Any) -> None:
    queue.publish("mail")
    queue.conn.execute("INSERT INTO messages.subscription (topic, subscriber) VALUES ('mail', 'secret')")
    headers = as_token("operator", topics=("mail*",)) | {"accept": "text/html"}

    sent = [
        httpx.post(f"{site.url}/topics/mail/{action}", headers=headers, data={"subscriber": topic}).status_code
        for action, topic in (("subscribe", "orders"), ("unsubscribe", "secret"), ("subscribe", "mail.copy"))
    ]

    assert sent == [403, 403, 303]
    assert "secret" not in httpx.get(f"{site.url}/topics/mail", headers=headers).text
    queue.conn.execute("DELETE FROM messages.subscription")


@pytest.mark.long
def test_attempts_include_those_that_did_not_succeed(visitor: Visitor, queue: Queue) -> None:
    queue.publish("mail")
    queue.conn.execute(
        "INSERT INTO messages.measure (minute, topic, success, failed, rejected, retried)"
        " VALUES (date_trunc('minute', now()), 'mail', 883, 15, 5, 148)"
    )

    page = visitor.open("/topics/mail")

    expect(page.locator("#figures")).to_contain_text(
        re.compile(r"Attempts, last hour\s*1,051\s*883 succeeded, 20 died, 148 tried again")
    )


@pytest.mark.long
def test_the_order_of_channels_is_shown_as_a_limit(visitor: Visitor, queue: Queue) -> None:
    queue.policy("mail", ordered=True)
    queue.publish("mail", channel="customer-1")

    page = visitor.open("/topics/mail")

    expect(page.locator("#limits")).to_contain_text(re.compile(r"ordered\s*one at a time in each channel, in order"))
    expect(page.locator("#limits")).not_to_contain_text("None:")


@pytest.mark.long
def test_a_pause_takes_a_reason_and_a_duration_or_an_end(visitor: Visitor, queue: Queue) -> None:
    sample_data.worker(queue)
    queue.publish("mail")
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(days=3)
    page = visitor.open("/topics/mail")
    expect(page.get_by_role("button", name="Pause mail")).to_be_in_viewport()

    page.get_by_text("Pause with a reason").click()
    page.get_by_label("Reason").fill("the relay is down")
    page.get_by_label("Resume automatically after").fill("30m")
    page.get_by_role("button", name="Pause", exact=True).click()
    expect(page.locator("#state")).to_contain_text("by local")
    expect(page.locator("#state")).to_contain_text("“the relay is down”")
    assert queue.claim("mail") == []
    assert queue.value("SELECT resume_at - paused_at FROM messages.topic WHERE topic = 'mail'").total_seconds() == 1800
    expect(page.get_by_role("button", name="Resume")).to_be_in_viewport()
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Pause mail")).to_be_visible()
    page.reload()
    page.get_by_text("Pause with a reason").click()
    page.get_by_label("Or resume at").fill(f"{until:%Y-%m-%d %H:%M:%S}")
    page.get_by_role("button", name="Pause", exact=True).click()
    expect(page.locator("#state")).to_contain_text("by local")

    assert queue.value("SELECT resume_at FROM messages.topic WHERE topic = 'mail'") == until


def test_an_invalid_time_is_refused_with_the_valid_forms(visitor: Visitor, queue: Queue) -> None:
    visitor.expected = ["422"]
    queue.publish("mail")
    page = visitor.open("/topics/mail")

    page.get_by_text("Pause with a reason").click()
    for label, expected in (
        ("Resume automatically after", 'expected a duration like "250ms"'),
        ("Or resume at", 'use a time like "2026-02-01 12:00"'),
    ):
        page.get_by_label(label).fill("soon")
        page.get_by_role("button", name="Pause", exact=True).click()
        expect(page.locator("#toasts")).to_contain_text(expected)
        page.get_by_label(label).fill("")
    assert queue.value("SELECT count(*) FROM messages.topic WHERE paused_at IS NOT NULL") == 0
    page.get_by_role("button", name="Pause mail").click()
    expect(page.get_by_role("button", name="Resume")).to_be_in_viewport()
    assert queue.claim("mail") == []


@pytest.mark.long
def test_thresholds_are_set_and_a_policy_is_reset(visitor: Visitor, queue: Queue) -> None:
    queue.policy("mail", max_attempts=7)
    queue.call("pause", "mail")
    page = visitor.open("/topics/mail")

    page.get_by_text("Thresholds of alerts").click()
    page.get_by_label("backlog_age").fill("2h")
    page.get_by_label("dead_per_hour").fill("0")
    page.get_by_role("button", name="Set", exact=True).click()
    expect(page.locator("#thresholds")).to_contain_text("2 set here")
    own = queue.row(
        "SELECT backlog_age, no_worker_for, dead_per_hour FROM messages.alert_threshold WHERE topic = 'mail'"
    )
    page.get_by_role("button", name="Reset to the defaults").click()
    page.get_by_role("dialog").get_by_role("button", name="Reset to the defaults").click()
    expect(page).to_have_url(re.compile("/topics$"))

    assert own == (timedelta(hours=2), None, 0)
    assert queue.value("SELECT count(*) FROM messages.topic WHERE topic = 'mail'") == 0


def test_a_channel_is_paused_alone(visitor: Visitor, queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.channel (topic, channel, concurrency) VALUES ('mail', 'customer-1', 3)")
    queue.publish("mail", channel="customer-1")
    queue.publish("mail", channel="customer-2")
    page = visitor.open("/topics/mail")

    page.get_by_role("button", name="Pause channel customer-1").click()
    expect(page.get_by_role("button", name="Resume channel customer-1")).to_be_visible()

    assert [each.channel for each in queue.claim("mail")] == ["customer-2"]


def test_a_limit_has_its_own_unit_before_anything_is_counted(visitor: Visitor, queue: Queue) -> None:
    queue.publish("mail")
    queue.policy("mail", max_depth=1000, dequeue_rate=100)

    limits = visitor.open("/topics/mail").locator("#limits")

    expect(limits).to_contain_text(re.compile(r"max_depth\s+(\d of )?1,000\s+dequeue|dequeue_rate"))
    expect(limits.locator("dd", has_text="1,000")).not_to_contain_text("per second")
    expect(limits.locator("dd", has_text="100 per second")).to_have_count(1)


def setting(page: Page, name: str) -> None:
    """Open the group that a setting is in."""
    group = page.locator("#policy-form details", has=page.locator(f"[name='{name}']"))
    if group.get_attribute("open") is None:
        group.locator("summary").click()


def test_a_setting_shows_its_own_value_beside_the_inherited_one(visitor: Visitor, queue: Queue) -> None:
    queue.policy("mail", max_attempts=5)

    page = visitor.open("/topics/mail")

    expect(page.locator("label[for=k-max_attempts]")).to_contain_text("set to 5; default 1")
    expect(page.locator("label[for=k-lock_duration]")).to_contain_text("inherits 30s")
    expect(page.locator("#h-k-max_attempts")).to_contain_text(
        re.compile(r"How many attempts a message has.*\[0 or more attempts\]")
    )


def test_a_change_is_shown_with_its_effect_before_it_is_applied(visitor: Visitor, queue: Queue) -> None:
    queue.publish("mail")
    page = visitor.open("/topics/mail")

    setting(page, "max_attempts")
    page.locator("[name=max_attempts]").fill("4")
    preview = page.locator("#policy-preview")
    expect(preview).to_contain_text("max_attempts inherit → 4")
    expect(preview).to_contain_text("A message that fails is tried 4 times in all; then it is dead.")
    before = queue.value("SELECT count(*) FROM messages.topic WHERE topic = 'mail'")
    preview.get_by_role("button", name="Apply").click()
    expect(page.locator("#toasts")).to_contain_text("The policy is set: 1 changed.")
    expect(page.locator("label[for=k-max_attempts]")).to_contain_text("set to 4; default 1")

    assert before == 0
    assert queue.value("SELECT max_attempts FROM messages.topic WHERE topic = 'mail'") == 4


def test_an_invalid_value_is_reported_while_typing_and_cannot_be_applied(visitor: Visitor, queue: Queue) -> None:
    """Nor is a schema read from a file of the server."""
    queue.publish("mail")
    page = visitor.open("/topics/mail")

    setting(page, "lock_duration")
    page.locator("[name=lock_duration]").fill("1 parsec")

    preview = page.locator("#policy-preview")
    expect(preview).to_contain_text("Invalid values")
    expect(preview.get_by_role("link", name="lock_duration")).to_have_attribute("href", "#k-lock_duration")
    expect(preview).to_contain_text("expected a duration")
    expect(preview.get_by_role("button", name="Apply")).to_have_count(0)
    setting(page, "payload_schema")
    page.locator("[name=payload_schema]").fill("@/etc/passwd")
    expect(preview).to_contain_text("paste the schema itself")


@pytest.mark.long
def test_a_change_writes_only_the_typed_values(visitor: Visitor, queue: Queue) -> None:
    queue.policy("mail", max_attempts=2)
    page = visitor.open("/topics/mail")
    queue.policy("mail", max_attempts=7)

    page.locator("[name=timeout]").fill("2m")
    page.get_by_role("button", name="Apply").click()
    expect(page.locator("#toasts")).to_contain_text("1 changed")

    row = queue.row("SELECT max_attempts, timeout FROM messages.topic WHERE topic = 'mail'")
    assert (row.max_attempts, row.timeout.total_seconds()) == (7, 120)


@pytest.mark.long
def test_an_emptied_field_is_inherited_again_and_a_backoff_is_one_setting(visitor: Visitor, queue: Queue) -> None:
    queue.policy("mail", max_attempts=5)
    page = visitor.open("/topics/mail")

    page.locator("[name=max_attempts]").fill("")
    page.locator("[name='backoff.kind']").select_option("constant")
    page.locator("[name='backoff.base']").fill("5s")
    expect(page.locator("#policy-preview li")).to_have_count(2)
    expect(page.locator("#policy-preview")).to_contain_text("Each new attempt begins 5s after the one that failed.")
    page.get_by_role("button", name="Apply").click()
    expect(page.locator("#toasts")).to_contain_text("2 changed")

    row = queue.row("SELECT max_attempts, backoff FROM messages.topic WHERE topic = 'mail'")
    assert (row.max_attempts, row.backoff) == (None, {"kind": "constant", "base": "5s"})


@pytest.mark.long
def test_the_defaults_are_edited_like_a_topic(visitor: Visitor, queue: Queue) -> None:
    page = visitor.open("/topics/*")

    expect(page.get_by_role("heading", level=1)).to_have_text("Default policy")
    page.locator("[name=max_attempts]").fill("3")
    page.get_by_role("button", name="Apply").click()
    expect(page.locator("#toasts")).to_contain_text("1 changed")

    assert queue.value("SELECT max_attempts FROM messages.topic WHERE topic = '*'") == 3


def test_a_missing_topic_is_not_found(visitor: Visitor) -> None:
    visitor.expected = ["404"]

    page = visitor.open("/topics/nothing")

    expect(page.get_by_role("heading", level=1)).to_have_text("Not found")
