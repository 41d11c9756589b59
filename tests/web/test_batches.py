"""Batches."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.sql.queue import Queue
from tests.web.site import Visitor


def test_a_batch_shows_how_far_it_is_and_is_closed_redriven_and_cancelled(visitor: Visitor, queue: Queue) -> None:
    batch = queue.call("create_batch", "import", on_failure="failing", metadata={"file": "a.csv"})
    queue.publish_many(4, batch_id=batch)
    first, second, *_ = queue.claim(limit=2)
    queue.settle("complete", [first])
    queue.settle("fail", [second], ["boom"])
    page = visitor.open("/batches")
    row = page.get_by_role("row", name="import")
    expect(row.locator("[data-label=Ended]")).to_have_text("2 of 4")

    row.get_by_role("link").click()
    facts = page.locator("#facts")
    expect(facts).to_contain_text("2 of 4")
    expect(facts).to_contain_text("Estimated end")
    expect(facts).to_contain_text("a.csv")
    expect(facts.get_by_role("link", name=re.compile("^message "))).to_be_visible()
    page.get_by_role("button", name="Close").click()
    expect(page.locator("#toasts")).to_contain_text("is closed.")
    page.get_by_role("button", name="Redrive the dead messages").click()
    expect(page.locator("#toasts")).to_contain_text("1 message redriven.")
    page.get_by_role("link", name="Its messages").click()
    expect(page.locator("#found tbody tr")).to_have_count(5)
    page.go_back()
    page.get_by_role("button", name="Cancel the batch").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the batch").click()
    expect(facts.locator(".badge")).to_have_text("finished")

    page = visitor.open(f"/messages/{first.id}")
    page.get_by_role("link", name=str(batch), exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Batch {batch}: import")


@pytest.mark.long
def test_batches_are_filtered_and_paged(visitor: Visitor, queue: Queue) -> None:
    done = queue.call("create_batch", "done")
    queue.call("close_batch", done)
    for _ in range(30):
        queue.call("create_batch")
    page = visitor.open("/batches")
    rows = page.locator("#list tbody tr")

    page.get_by_label("Rows").select_option("25")
    page.get_by_role("button", name="Filter").click()
    expect(rows).to_have_count(25)
    page.get_by_role("link", name="Older").click()
    expect(rows).to_have_count(6)
    page.get_by_label("State").select_option("finished")
    page.get_by_label("Created since").fill("1h")
    page.get_by_role("button", name="Filter").click()

    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("done")
