"""The charts next to the list of messages follow its filters, as far as the workers measure by them."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from tests.sql.queue import Queue
from tests.web import sample_data
from tests.web.accessible import page_complaints
from tests.web.site import Site, Visitor, is_live


@pytest.fixture
def measured(queue: Queue) -> None:
    """Ten minutes of two topics and of a worker.

    Each minute 60 of mail succeed and 6 fail, 120 of orders succeed, and w-1 ends 30.
    """
    sample_data.measured(queue, "mail", 60, failed=6)
    sample_data.measured(queue, "orders", 120)
    queue.conn.execute(
        "INSERT INTO messages.worker_measure (minute, worker, success)"
        " SELECT date_trunc('minute', messages.now()) - n * interval '1 min', 'w-1', 30 "
        "FROM generate_series(1, 10) AS n"
    )


def charts(site: Site, query: str, **headers: str) -> tuple[dict[str, float], str]:
    """Return how many attempts per second each line of the chart has at most, and its caption."""
    text = httpx.get(f"{site.url}/messages?{query}", headers={"accept": "text/html"} | headers).text
    found = re.search(r'id="throughput" data-chart="([^"]*)"', text)
    caption = re.search(r"<figcaption>(.*?)</figcaption>", text)
    assert found
    assert caption
    drawn = json.loads(html.unescape(found[1]))
    lines = zip(drawn["series"], drawn["y"], strict=True)
    return {line["name"]: max(values, default=0) for line, values in lines}, html.unescape(caption[1])


# What the charts show if a list is narrowed so: the lines, with the most in each unless that depends on the moment.
FILTERS: list[tuple[str, dict[str, float | None], str]] = [
    ("", {"success": 3, "failed": 0.1}, "How attempts ended, in the last hour."),
    ("topic=mail", {"success": 1, "failed": 0.1}, "How attempts in mail ended, in the last hour."),
    ("topic=unknown", {"success": 0}, "How attempts in unknown ended, in the last hour."),
    ("worker=w-1", {"success": 0.5}, "How attempts by w-1 ended, in the last hour."),
    ("state=dead", {"failed": 0.1}, "How attempts ended, in the last hour."),
    ("since=6h", {"success": None, "failed": None}, "How attempts ended, in the last 6h."),
    ("until=30m", {"success": 0}, "How attempts ended, in the last hour."),
    ("since=400d", {"success": None, "failed": None}, "How attempts ended, in the last 24h."),
    (
        "state=ready&topic=mail&worker=w-1&key=k&attempts=2",
        {"success": 1, "failed": 0.1},
        "How attempts in mail ended, in the last hour. Not narrowed by state, key, worker, attempts.",
    ),
]


@pytest.mark.usefixtures("measured")
def test_the_charts_follow_the_filters(site: Site) -> None:
    for query, lines, caption in FILTERS:
        found, said = charts(site, query)

        assert {name: None if lines.get(name, 0) is None else value for name, value in found.items()} == lines, query
        assert said == caption


@pytest.mark.usefixtures("measured")
def test_a_token_sees_the_attempts_of_its_topics(site: Site, as_token: Any) -> None:
    headers = as_token("viewer", topics=("mail*",))

    assert charts(site, "", **headers)[0] == {"success": 1, "failed": 0.1}
    assert charts(site, "topic=orders", **headers)[0] == {"success": 0}
    assert charts(site, "worker=w-1", **headers) == (
        {"success": 1, "failed": 0.1},
        "How attempts ended, in the last hour. Not narrowed by worker.",
    )


@pytest.mark.usefixtures("queue")
def test_hostile_filters_are_refused_or_shown_and_break_nothing(site: Site) -> None:
    for query in ("topic=%00", "worker=a%00b", "topic=" + "x" * 999, "since=0s", "until=0s"):
        assert httpx.get(f"{site.url}/messages?{query}", headers={"accept": "text/html"}).status_code in (200, 422)


@pytest.mark.long
@pytest.mark.usefixtures("measured")
def test_charts_that_were_opened_are_open_on_the_next_page_and_live(visitor: Visitor, queue: Queue) -> None:
    page = visitor.open("/messages", bypass_csp=True)
    charts = page.locator("#throughput canvas")
    expect(charts).not_to_be_visible()

    page.get_by_text("Charts", exact=True).click()
    expect(charts).to_be_visible()
    page.goto("/messages?topic=mail")

    expect(charts).to_be_visible()
    page.wait_for_function("document.querySelector('#throughput canvas')?.clientWidth > 200")
    assert page_complaints(page, "/messages", "with charts") == []
    is_live(page)
    queue.conn.execute("UPDATE messages.measure SET rejected = 60 WHERE topic = 'mail'")
    expect(page.locator("#throughput .legend")).to_contain_text("rejected")
