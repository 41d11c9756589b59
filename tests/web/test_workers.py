"""Workers."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.sql.queue import Queue
from tests.web import sample_data
from tests.web.site import Visitor


@pytest.mark.long
def test_each_worker_shows_its_messages_its_listener_and_its_last_heartbeat(visitor: Visitor, queue: Queue) -> None:
    sample_data.worker(queue, "w-1")
    sample_data.worker(queue, "w-2", listener="degraded")
    sample_data.worker(queue, "w-3", age="5 min")
    published = queue.publish("mail")
    queue.claim("mail", worker="w-1/0")

    page = visitor.open("/workers")

    first = page.get_by_role("region", name="w-1", exact=True)
    expect(first).to_contain_text("working")
    expect(first).to_contain_text("host-1, process 4711, version 0.1.0")
    expect(first.locator("tbody tr")).to_contain_text(str(published))
    expect(page.get_by_role("region", name="w-2", exact=True)).to_contain_text("not listening, polling")
    expect(page.get_by_role("region", name="w-3", exact=True)).to_contain_text("silent")


@pytest.mark.long
def test_an_empty_list_explains_how_to_start_a_worker(visitor: Visitor) -> None:
    page = visitor.open("/workers")

    expect(page.locator("#list")).to_contain_text("pgrouse run")


def test_a_worker_with_many_messages_shows_the_oldest(visitor: Visitor, queue: Queue) -> None:
    sample_data.worker(queue, "w-1")
    queue.publish_many(30, "mail")
    queue.claim("mail", worker="w-1/1", limit=30)

    page = visitor.open("/workers")

    expect(page.locator("tbody tr")).to_have_count(5)
    expect(page.locator("#list")).to_contain_text("and 25 more")


@pytest.mark.long
def test_drain_stops_the_worker_after_a_confirmation(visitor: Visitor, queue: Queue) -> None:
    sample_data.worker(queue, "w-1")
    page = visitor.open("/workers")

    page.get_by_role("button", name="Drain w-1").click()
    page.get_by_role("dialog").get_by_role("button", name="Drain").click()
    expect(page.locator("#list")).to_contain_text("draining")

    asked = queue.row("SELECT drain_asked_at, drain_asked_by FROM messages.worker")
    assert (asked.drain_asked_at is not None, asked.drain_asked_by) == (True, "local")


@pytest.mark.long
def test_a_worker_is_scaled_and_shows_what_it_is_configured_for(visitor: Visitor, queue: Queue) -> None:
    sample_data.worker(queue, "w-1")
    page = visitor.open("/workers")

    page.get_by_role("link", name="Scale w-1").click()
    page.get_by_label("Handlers at once").fill("3")
    page.get_by_role("button", name="Scale").click()

    expect(page.get_by_role("region", name="w-1", exact=True)).to_contain_text("of 3 (scaled, configured for 10)")
    assert queue.value("SELECT requested_concurrency FROM messages.worker") == 3
    page.get_by_role("link", name="Scale w-1").click()
    page.get_by_label("Handlers at once").fill("")
    page.get_by_role("button", name="Scale").click()
    expect(page.get_by_role("region", name="w-1", exact=True)).to_contain_text("of 10")
    assert queue.value("SELECT requested_concurrency FROM messages.worker") is None


def test_a_worker_shows_how_many_messages_of_a_topic_it_may_run(visitor: Visitor, queue: Queue) -> None:
    sample_data.worker(queue, "w-1")
    queue.policy("mail", worker_concurrency=2)

    page = visitor.open("/workers")

    expect(page.get_by_role("region", name="w-1", exact=True)).to_contain_text("mail at most 2 at once")
    page.get_by_role("link", name="Scale w-1").click()
    page.get_by_label("Topic", exact=True).select_option(label="mail: now 2")
    page.get_by_label("Handlers at once").fill("4")
    page.get_by_role("button", name="Scale").click()
    expect(page.get_by_role("region", name="w-1", exact=True)).to_contain_text("mail at most 4 at once")


@pytest.mark.long
def test_what_is_in_flight_is_what_the_list_shows_and_such_a_worker_is_not_asleep(
    visitor: Visitor, queue: Queue
) -> None:
    sample_data.worker(queue, "w-1", in_flight=6)
    queue.call("arm", "w-1", ["mail"], "1 minute")
    page = visitor.open("/workers")
    worker = page.get_by_role("region", name="w-1", exact=True)
    expect(worker).to_contain_text("0 of 10")
    expect(worker).to_contain_text("asleep")

    queue.publish_many(2, "mail")
    queue.claim("mail", worker="w-1/0", limit=2)
    page.reload()

    expect(worker).to_contain_text("2 of 10")
    expect(worker).not_to_contain_text("asleep")


def test_a_job_on_spark_and_a_worker_over_http_have_no_button_that_they_would_not_obey(
    visitor: Visitor, queue: Queue
) -> None:
    queue.call("touch_http_worker", "http:t/w", "host", ["mail"], 10)
    queue.call("register_worker", "spark-1", "host", 1, "0", ["mail"], 1000)
    queue.call("touch_worker", "spark-1", '{"engine": "spark", "in_flight": 0}')

    page = visitor.open("/workers")

    expect(page.get_by_role("region", name="spark-1", exact=True)).to_contain_text("working")
    expect(page.get_by_role("button", name="Drain http:t/w")).to_be_visible()
    expect(page.get_by_role("button", name="Drain")).to_have_count(1)
    expect(page.get_by_role("link", name="Scale")).to_have_count(0)
