"""The page of the archive: its days, the retention, and the exports."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, timedelta
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from tests.sql.deaths import die, die_ago
from tests.sql.exports import export
from tests.sql.queue import Queue
from tests.web.accessible import complaints
from tests.web.site import Site, Visitor

HTML = {"accept": "text/html"}


@pytest.fixture
def old_day(queue: Queue) -> Iterator[date]:
    """A day of the archive that is beyond its retention."""
    day: date = queue.value("SELECT (messages.now() AT TIME ZONE 'UTC')::date - 40")
    table = f"messages.message_archive_{day:%Y%m%d}"
    bounds = f"FROM ('{day} 00:00+00') TO ('{day + timedelta(1)} 00:00+00')"
    queue.conn.execute(f"CREATE TABLE {table} PARTITION OF messages.message_archive FOR VALUES {bounds}".encode())
    yield day
    queue.conn.execute(f"DROP TABLE {table}".encode())


@pytest.mark.long
def test_without_an_export_the_page_says_how_to_make_one(visitor: Visitor) -> None:
    expect(visitor.open("/archive").locator("#exports .empty")).to_contain_text("pgrouse pipeline export")


@pytest.mark.long
def test_each_day_has_its_size_and_when_it_is_removed(visitor: Visitor, queue: Queue) -> None:
    queue.policy("orders", retention="40 days")
    die(queue)
    queue.conn.execute("ANALYZE messages.message_archive")
    today = queue.value("SELECT (messages.now() AT TIME ZONE 'UTC')::date")

    page = visitor.open("/archive")

    retention = page.get_by_role("region", name="Retention")
    expect(retention.locator("tbody tr", has_text="all others")).to_contain_text("30d")
    expect(retention.locator("tbody tr", has_text="orders")).to_contain_text("40d")
    days = page.get_by_role("region", name="Days").locator("tbody tr")
    expect(days).to_have_count(1)
    expect(days).to_contain_text(str(today))
    expect(days).to_contain_text("≈ 1")
    expect(days).to_contain_text("kB")
    expect(days).to_contain_text(re.compile("in 4[01]d"))


@pytest.mark.long
def test_an_export_that_holds_the_archive_is_deleted_after_a_confirmation(
    visitor: Visitor, queue: Queue, old_day: date
) -> None:
    die_ago(queue, "40 days")
    export(queue)
    page = visitor.open("/archive")
    row = page.locator("#exports tbody tr")
    expect(row).to_contain_text("/lake")
    expect(row.locator(".badge")).to_have_text("holds the archive")
    oldest = page.get_by_role("region", name="Days").locator("tbody tr", has_text=str(old_day))
    expect(oldest.locator(".badge")).to_have_text("due")

    row.get_by_role("button", name="Delete the export e").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()

    expect(page.locator("#exports .empty")).to_contain_text("No exports")
    assert queue.rows("SELECT FROM messages.export_cursor") == []
    assert queue.value("SELECT actor FROM messages.audit WHERE action = 'delete_export'") == "local"


def test_messages_of_no_day_and_an_export_that_is_up_to_date_are_shown(visitor: Visitor, queue: Queue) -> None:
    die_ago(queue, "3650 days")
    export(queue, upto=die(queue))

    page = visitor.open("/archive")

    expect(page.get_by_role("region", name="Days")).to_contain_text("of no day")
    expect(page.locator("#exports tbody .badge")).to_have_text("up to date")


def test_the_archive_is_for_tokens_of_all_topics_and_exports_are_deleted_by_operators(
    site: Site, queue: Queue, as_token: Any
) -> None:
    die(queue)
    export(queue)
    some = as_token("operator", topics=("mail*",)) | HTML
    viewer = as_token("viewer", name="reader") | HTML

    assert httpx.get(f"{site.url}/archive", headers=some).status_code == 403
    assert "Delete" not in httpx.get(f"{site.url}/archive", headers=viewer).text
    answers = [
        httpx.post(f"{site.url}/archive/exports/delete", headers=each, data={"name": "e"}) for each in (some, viewer)
    ]
    assert [each.status_code for each in answers] == [403, 403]
    assert len(queue.rows("SELECT FROM messages.export_cursor")) == 1


@pytest.mark.long
def test_the_page_is_accessible(visitor: Visitor, queue: Queue) -> None:
    die(queue)
    export(queue)

    assert complaints(visitor, "/archive") == []
