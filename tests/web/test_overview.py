"""The overview."""

from __future__ import annotations

import json
import re

import httpx
import pytest
from playwright.sync_api import expect

from tests.sql.queue import Queue
from tests.web import sample_data
from tests.web.site import Site, Visitor


def test_the_overview_shows_backlog_age_deaths_and_workers(visitor: Visitor, queue: Queue) -> None:
    sample_data.busy(queue)

    page = visitor.open("/")

    figures = page.locator("#figures")
    expect(figures).to_contain_text(re.compile(r"Ready\s*14"))
    expect(figures).to_contain_text("2 delayed")
    expect(figures).to_contain_text(re.compile(r"Running\s*2\s*by 2 workers"))
    expect(figures).to_contain_text(re.compile(r"Dead\s*1\s*in the last day"))
    expect(page.locator("#state")).to_contain_text("1 silent")
    expect(page.locator("#state")).to_contain_text("1 not listening, polling")
    expect(page.locator("#waiting")).to_contain_text(re.compile(r"no.handler\s+no worker"))


def test_the_charts_show_the_results_of_attempts_and_the_table_their_durations(visitor: Visitor, queue: Queue) -> None:
    sample_data.measured(queue, success=600, failed=6)

    page = visitor.open("/")

    throughput = page.locator("#throughput")
    expect(throughput.locator("canvas")).to_be_visible()
    # The current minute has nothing yet.
    expect(throughput.locator(".legend")).to_have_text(re.compile(r"^succeeded (10|0)failed (0\.1|0)$"))
    drawn = json.loads(throughput.get_attribute("data-chart") or "")
    assert max(drawn["y"][0]) == 10
    expect(throughput.get_by_role("img")).to_have_attribute(
        "aria-label",
        "Attempts per second by how they ended: 6,000 succeeded, 0 were tried again, 60 failed, 0 were rejected in the last hour",
    )
    expect(page.locator("#latencies canvas")).to_be_visible()
    expect(page.locator("#times tbody tr").nth(1)).to_contain_text("Ran")
    expect(page.locator("#times")).to_contain_text(" ms")


def test_an_empty_queue_shows_the_next_step_and_no_problem(visitor: Visitor) -> None:
    page = visitor.open("/")

    expect(page.locator("#waiting")).to_contain_text("No topic yet")
    expect(page.locator("#state")).to_contain_text("no worker")
    expect(page.locator("#wrong")).to_contain_text("The queue itself sees no problem.")


def test_large_counts_stop_at_their_limit_and_say_so(visitor: Visitor, queue: Queue) -> None:
    queue.publish_many(1200, "bulk")

    page = visitor.open("/")

    expect(page.locator("#figures")).to_contain_text("1,000+")
    expect(page.locator("#figures")).to_contain_text("0 delayed")
    expect(page.locator("#waiting")).to_contain_text("1,000+")


@pytest.mark.slow
def test_every_page_of_a_million_messages_loads_within_its_statement_timeout(visitor: Visitor, queue: Queue) -> None:
    queue.conn.execute("SET session_replication_role = replica")
    queue.conn.execute(
        "INSERT INTO messages.message (topic, payload) SELECT 'topic-' || n %% 100, '1' FROM generate_series(1, 1000000) AS n",
        [],
    )

    for path in ("/", "/topics", "/topics/topic-1", "/schedules", "/workers"):
        page = visitor.open(path)

        expect(page.locator("h1")).not_to_have_text("Timed out")


def test_a_problem_is_shown_with_its_fix(visitor: Visitor, queue: Queue) -> None:
    queue.conn.execute(
        "INSERT INTO messages.condition (kind, topic, since, what, fix) VALUES ('backlog_age', 'mail', now(), 'topic mail waits for an hour', 'start more workers')"
    )

    page = visitor.open("/")

    expect(page.locator("#wrong")).to_contain_text("topic mail waits for an hour")
    expect(page.locator("#wrong")).to_contain_text("start more workers")


def test_another_period_is_a_link(visitor: Visitor, queue: Queue) -> None:
    sample_data.measured(queue)

    page = visitor.open("/")
    page.get_by_role("link", name="24h").click()

    expect(page.locator("#throughput figcaption")).to_contain_text("in the last day")


def test_search_finds_a_message_by_its_id_and_otherwise_topics(site: Site, queue: Queue) -> None:
    found = {
        typed: httpx.get(f"{site.url}/search", params={"q": typed}).headers["location"]
        for typed in ("17", "#17", "mail & co", "")
    }

    assert found == {
        "17": "/messages/17",
        "#17": "/messages/17",
        "mail & co": "/topics?q=mail%20%26%20co",
        "": "/topics",
    }
