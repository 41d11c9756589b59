"""The page of alerts: what was raised, the sinks, and what is silenced."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from tests.sql.queue import Queue
from tests.sql.sinks import Sink, raise_alert
from tests.web.accessible import complaints
from tests.web.site import Site, Visitor, is_live

HTML = {"accept": "text/html"}


def fail_in(queue: Queue, topic: str, error: str = "Traceback\n  File x\nValueError: disk 7") -> None:
    """Raise an alert of a dead message, and let the sink `ops` take it."""
    raise_alert(queue, topic=topic, error_fingerprint="f1", sample_error=error)


@pytest.mark.long
def test_an_empty_page_says_what_it_would_show(visitor: Visitor) -> None:
    page = visitor.open("/alerts")

    expect(page.locator("#alerts .empty")).to_contain_text("No alerts")
    expect(page.locator("#sinks .empty")).to_contain_text("No one is notified")
    expect(page.locator("#silences .empty")).to_contain_text("No silences")


@pytest.mark.long
def test_an_alert_shows_its_error_and_is_silenced_in_its_row(visitor: Visitor, queue: Queue) -> None:
    sink = Sink(queue, "ops")
    fail_in(queue, "mail")
    sink.next()
    page = visitor.open("/alerts")
    row = page.locator("#alerts tbody tr")
    expect(row).to_contain_text("ValueError: disk 7")
    expect(row.locator(".badge")).to_have_text("firing")

    row.get_by_role("button", name="Silence dead message mail for 4 hours").click()

    expect(row.locator(".badge")).to_have_text("silenced")
    expect(page.locator("#silences tbody tr")).to_contain_text("dead message, mail")
    assert queue.row("SELECT kind, topic, error_fingerprint FROM messages.silence") == ("dead_message", "mail", "f1")
    page.get_by_role("button", name="End silence 1").click()
    expect(page.locator("#silences .empty")).to_be_visible()
    expect(row.locator(".badge")).to_have_text("firing")


@pytest.mark.long
def test_an_incident_stays_with_its_begin_end_and_messages_when_a_redrive_has_ended_it(
    visitor: Visitor, queue: Queue
) -> None:
    queue.conn.execute("UPDATE messages.alert_threshold SET dead_per_hour = 3 WHERE topic = '*'")
    ids = queue.publish_many(4, "mail")
    queue.settle("fail", queue.claim("mail"), ["boom"] * 4)
    queue.call("update_conditions")
    page = visitor.open("/alerts")
    row = page.locator("#alerts tbody tr")
    expect(row).to_contain_text("Many dead in mail")
    expect(row.locator(".badge.bad")).to_have_text("firing")
    is_live(page)

    queue.rows("SELECT FROM messages.redrive(%s)", [ids])

    expect(page.locator("#alerts .empty")).to_contain_text("No alerts")
    queue.call("update_conditions")
    page.get_by_role("link", name="All").click()
    expect(row.locator(".badge")).to_have_text("over")
    expect(row.locator("td[data-label=Began]")).to_contain_text("ended")
    row.get_by_role("link", name="4 of many dead mail").click()
    expect(page.locator("#found tbody tr")).to_have_count(4)


def test_a_silence_is_added_by_the_form_and_a_wrong_one_is_refused(visitor: Visitor, queue: Queue) -> None:
    visitor.expected = ["422"]
    page = visitor.open("/alerts")
    page.get_by_role("button", name="Add a silence").click()
    dialog = page.get_by_role("dialog", name="Add a silence")
    dialog.get_by_role("button", name="Silence").click()
    expect(page.locator("#toasts")).to_contain_text("choose a kind, a topic or a fingerprint")
    dialog.get_by_label("Topic").fill("import.*")
    dialog.get_by_label("For", exact=True).fill("2d")
    dialog.get_by_label("Reason").fill("the supplier is down")
    dialog.get_by_role("button", name="Silence").click()

    expect(page.locator("#silences tbody tr")).to_contain_text("any kind, import.*")
    assert queue.row("SELECT kind, topic, reason, created_by FROM messages.silence") == (
        *(None, "import.*", "the supplier is down"),
        "local",
    )


@pytest.mark.long
def test_a_failing_sink_shows_its_error_and_is_live(visitor: Visitor, queue: Queue) -> None:
    Sink(queue, "ops").next()
    page = visitor.open("/alerts")
    expect(page.locator("#sinks tbody tr .badge")).to_have_text("no delivery yet")
    is_live(page)

    queue.conn.execute(
        "UPDATE messages.alert_sink SET failing_since = clock_timestamp(), failures = 3, last_error = '503 <b>Down</b>'"
    )
    queue.publish()

    expect(page.locator("#sinks tbody tr .badge")).to_have_text("failing")
    expect(page.locator("#sinks tbody tr")).to_contain_text("503 <b>Down</b>")


@pytest.mark.long
def test_messages_of_the_last_hour_are_sent_again(visitor: Visitor, queue: Queue) -> None:
    sink = Sink(queue, "ops")
    fail_in(queue, "mail")
    sink.deliver()
    page = visitor.open("/alerts")

    page.get_by_role("button", name="Send again to ops").click()
    page.get_by_role("dialog").get_by_role("button", name="Send again").click()

    expect(page.locator("#toasts")).to_contain_text("1 message will be sent again")
    assert queue.value("SELECT count(*) FROM messages.alert_delivery WHERE replay_of IS NOT NULL") == 1


@pytest.mark.long
def test_a_token_of_some_topics_sees_and_silences_only_those(site: Site, queue: Queue, as_token: Any) -> None:
    sink = Sink(queue, "ops")
    fail_in(queue, "mail")
    fail_in(queue, "secret", "ValueError: classified")
    sink.next()
    queue.conn.execute("SELECT messages.silence('backlog', 'secret', p_for => '1 hour')")
    headers = as_token("operator", topics=("mail*",)) | HTML

    text = httpx.get(f"{site.url}/alerts", headers=headers).text
    sent = {
        topic: httpx.post(f"{site.url}/alerts/silence", headers=headers, data={"topic": topic, "for": "1h"}).status_code
        for topic in ("mail", "secret", "mail*", "*", "")
    }

    assert "disk 7" in text
    assert "classified" not in text
    assert "secret" not in text
    assert ">ops<" not in text.partition('id="sinks"')[2]
    assert sent == {"mail": 303, "secret": 403, "mail*": 403, "*": 403, "": 422}
    assert httpx.post(f"{site.url}/alerts/unsilence", headers=headers, data={"id": "1"}).status_code == 403
    assert httpx.post(f"{site.url}/alerts/replay", headers=headers, data={"sink": "ops"}).status_code == 403


def test_a_silence_that_cannot_be_is_refused(site: Site, queue: Queue) -> None:
    for given in ({"for": "forever"}, {"for": "40d"}, {"for": ""}, {"for": "1h", "fingerprint": "\0"}):
        answer = httpx.post(f"{site.url}/alerts/silence", data={"topic": "mail"} | given, headers=HTML)

        assert answer.status_code == 422
    assert queue.value("SELECT count(*) FROM messages.silence") == 0


@pytest.mark.long
def test_the_page_is_accessible(visitor: Visitor, queue: Queue) -> None:
    sink = Sink(queue, "ops")
    fail_in(queue, "mail", "a long error " * 30)
    sink.next()
    queue.conn.execute("SELECT messages.silence('backlog', 'mail', p_for => '1 hour', p_reason => 'known')")

    assert complaints(visitor, "/alerts") == []
