"""Workflows: the list, the graph of one, and what can be done to it."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.sql.queue import Queue
from tests.web.accessible import complaints
from tests.web.site import Visitor, is_live


def publish_order(queue: Queue, **named: object) -> tuple[int, int, int, int]:
    """Publish a workflow of four messages, and return their ids."""
    check = queue.publish("order.check", **named)
    bill, pack = (queue.send(topic=topic, after=[check]).id for topic in ("order.bill", "order.pack"))
    return check, bill, pack, queue.send(topic="order.ship", after=[bill, pack]).id


def test_a_workflow_is_shown_whole_from_its_beginning_to_its_end(visitor: Visitor, queue: Queue) -> None:
    batch = queue.call("create_batch", "orders")
    check, bill, pack, ship = publish_order(queue, batch_id=batch)
    queue.settle("complete", queue.claim("order.check"))
    page = visitor.open("/workflows")
    row = page.get_by_role("row", name="order.check")
    expect(row.locator("[data-label=Ended]")).to_have_text("1 of 4")
    expect(row.locator(".badge")).to_have_text("running")

    row.get_by_role("link").click()
    is_live(page)
    facts, graph = page.locator("#facts"), page.locator("svg.graph")
    expect(facts.get_by_role("link", name=str(batch), exact=True)).to_be_visible()
    expect(graph.get_by_role("link")).to_have_count(4)
    expect(graph.locator("path")).to_have_count(4)
    expect(graph).to_contain_text(f"{ship} blocked")
    queue.settle("complete", queue.claim("order.bill", "order.pack"))
    queue.settle("complete", queue.claim("order.ship"))

    expect(facts.locator(".badge")).to_have_text("finished")
    expect(graph.locator("path")).to_have_count(4)
    for message_id in (check, bill, pack, ship):
        expect(graph).to_contain_text(f"{message_id} success")
    page.goto(f"/messages/{ship}")
    page.locator("#now dl").get_by_role("link", name=str(check), exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Workflow {check}")


@pytest.mark.long
def test_a_dead_message_holds_it_until_it_is_redriven_or_all_is_cancelled(visitor: Visitor, queue: Queue) -> None:
    _, bill, _, ship = publish_order(queue)
    queue.settle("complete", queue.claim("order.check"))
    queue.settle("fail", queue.claim("order.bill"), ["boom"])
    publish_order(queue)
    page = visitor.open("/workflows?state=held")
    expect(page.locator("tbody tr")).to_have_count(1)

    page.locator("tbody a").click()
    facts = page.locator("#facts")
    expect(facts.locator(".badge")).to_have_text("held")
    page.get_by_role("button", name="Redrive the dead messages").click()
    expect(page.locator("#toasts")).to_contain_text("1 message redriven.")
    expect(facts.locator(".badge")).to_have_text("running")
    expect(page.locator("svg.graph a")).to_have_count(4)
    expect(page.locator("svg.graph")).not_to_contain_text(f"{bill} ")
    expect(page.locator("svg.graph path")).to_have_count(4)
    page.get_by_role("button", name="Cancel the workflow").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the workflow").click()
    expect(page.locator("#toasts")).to_contain_text("3 messages cancelled.")
    expect(facts.locator(".badge")).to_have_text("cancelled")
    assert queue.value("SELECT result FROM messages.message_archive WHERE id = %s", [ship]) == "cancelled"


@pytest.mark.long
def test_ten_thousand_messages_are_grouped_by_topic_and_listed_page_by_page(visitor: Visitor, queue: Queue) -> None:
    pages = queue.publish_many(9_000, "page.count")
    book = queue.send(topic="book.count", after=pages).id
    queue.settle("fail", queue.claim("page.count", limit=1), ["boom"])

    page = visitor.open(f"/workflows/{book}")

    graph = page.locator("svg.graph")
    expect(graph.locator("rect")).to_have_count(2)
    expect(graph).to_contain_text("9,000: 8,999 ready, 1 failed")
    expect(page.locator("#messages tbody tr")).to_have_count(100)
    page.get_by_role("link", name="Dead 1").click()
    expect(page.locator("#messages tbody tr")).to_have_count(1)


def test_a_token_for_some_topics_sees_and_cancels_only_their_messages(
    visitor: Visitor, queue: Queue, as_token: Any
) -> None:
    check, _, pack, ship = publish_order(queue)
    page = visitor.open(f"/workflows/{check}", extra_http_headers=as_token("operator", topics=["order.bill"]))
    expect(page.locator("svg.graph a")).to_have_count(1)

    page.get_by_role("button", name="Cancel the workflow").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the workflow").click()
    expect(page.locator("#toasts")).to_contain_text("1 message cancelled.")

    assert [row.id for row in queue.rows("SELECT id FROM messages.message ORDER BY id")] == [check, pack, ship]


@pytest.mark.long
def test_the_pages_are_accessible(visitor: Visitor, queue: Queue) -> None:
    check, *_ = publish_order(queue)

    found = [each for path in ("/workflows", f"/workflows/{check}") for each in complaints(visitor, path)]

    assert found == []
