"""The overview."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from pgrouse.web.page.problems import KINDS
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.alert.test_conditions import open_breaker
from tests.sql.queue import Queue
from tests.web import sample_data
from tests.web.site import NARROW, WIDE, Site, Visitor, is_live, overflow


@pytest.mark.long
def test_the_overview_shows_backlog_age_deaths_and_workers(visitor: Visitor, queue: Queue) -> None:
    sample_data.busy(queue)

    page = visitor.open("/")

    figures = page.locator("#figures")
    expect(figures).to_contain_text(re.compile(r"Ready\s*14"))
    expect(figures).to_contain_text("2 delayed")
    expect(figures).to_contain_text(re.compile(r"Running\s*2\s*2 workers"))
    expect(figures).to_contain_text(re.compile(r"Dead\s*1\s*in the last day"))
    expect(page.locator("#state")).to_contain_text("1 silent")
    expect(page.locator("#state")).to_contain_text("1 not listening, polling")
    expect(page.locator("#waiting")).to_contain_text(re.compile(r"no.handler\s+no worker"))


@pytest.mark.long
def test_the_charts_show_the_results_of_attempts_and_the_table_their_durations(visitor: Visitor, queue: Queue) -> None:
    sample_data.measured(queue, success=600, failed=6)

    page = visitor.open("/")

    throughput = page.locator("#throughput")
    expect(throughput.locator("canvas")).to_be_visible()
    # The current minute has nothing yet.
    expect(throughput.locator(".legend")).to_have_text(re.compile(r"^success (10|0)failed (0\.1|0)$"))
    drawn = json.loads(throughput.get_attribute("data-chart") or "")
    assert max(drawn["y"][0]) == 10
    expect(throughput.get_by_role("img")).to_have_attribute(
        "aria-label",
        "Attempts per second by how they ended: 6,000 succeeded, 0 were tried again, 60 failed, "
        "0 were rejected in the last hour",
    )
    expect(page.locator("#latencies canvas")).to_be_visible()
    expect(page.locator("#times tbody tr").nth(1)).to_contain_text("Run")
    expect(page.locator("#times")).to_contain_text(" ms")


def test_an_empty_queue_shows_the_next_step_and_no_problem(visitor: Visitor) -> None:
    page = visitor.open("/")

    expect(page.locator("#waiting")).to_contain_text("No topics yet")
    expect(page.locator("#state")).to_contain_text("no worker")
    expect(page.locator("#problems")).to_contain_text("No problems found.")
    expect(page).to_have_title("Overview · pgrouse")
    expect(page.locator("#problem-count")).to_be_empty()


def test_a_queue_without_a_living_worker_is_not_said_to_be_well_before_that_is_a_problem(
    visitor: Visitor, queue: Queue
) -> None:
    queue.publish("mail")

    page = visitor.open("/")

    expect(page.locator("#problems")).to_contain_text("No worker is alive")
    expect(page.locator("#problems")).not_to_contain_text("No problems found")


def test_what_waits_has_the_badges_of_the_list_of_topics_and_idle_topics_are_left_out(
    visitor: Visitor, queue: Queue
) -> None:
    sample_data.worker(queue, topics=("mail", "idle"))
    queue.policy("idle", max_attempts=2)
    queue.publish("mail")
    queue.call("pause", "mail")
    queue.publish_many(15, "push")
    queue.publish_many(12, "order")

    page = visitor.open("/")

    rows = page.locator("#waiting tbody tr")
    # As many digits: the two do not change places with each message.
    expect(rows.locator("a")).to_have_text(["order", "push", "mail"])
    expect(rows.nth(2).locator(".badge")).to_have_text(["paused"])
    expect(page.locator("#waiting")).to_contain_text("and 1 more topics")


@pytest.mark.long
def test_a_large_number_is_an_estimate_and_not_a_sum_of_bounds(visitor: Visitor, queue: Queue) -> None:
    queue.publish_many(31_700, "bulk")
    queue.publish_many(9_000, "mail")
    queue.publish_many(12_300, "mail", wait="1 hour")

    page = visitor.open("/")

    expect(page.locator("#figures")).to_contain_text("≈ 41,000")
    expect(page.locator("#figures")).to_contain_text("≈ 12,000 delayed")
    expect(page.locator("#waiting tbody tr").nth(0)).to_contain_text(re.compile(r"bulk[^\d]*≈ 32,000"))
    expect(page.locator("#waiting tbody tr").nth(1)).to_contain_text(re.compile(r"mail[^\d]*9,000"))


@pytest.mark.long
def test_the_dead_of_a_topic_are_counted_however_many_died_in_others(visitor: Visitor, queue: Queue) -> None:
    for topic, count in (("payments", 2_500), ("webhooks", 191), ("reports", 5)):
        queue.publish_many(count, topic)
        queue.settle("fail", queue.claim(topic, limit=count), ["boom"] * count)

    page = visitor.open("/")
    expect(page.locator("#figures")).to_contain_text(re.compile(r"Dead\s*2,696"))
    page = visitor.open("/topics")

    for topic, dead in (("payments", "2,500"), ("webhooks", "191"), ("reports", "5")):
        row = page.locator("#list tbody tr").filter(has_text=topic)
        expect(row.locator("td[data-label='Dead, 24h']")).to_have_text(dead)


@pytest.mark.long
@pytest.mark.slow
def test_every_page_of_a_million_messages_loads_within_its_statement_timeout(shown: Database, queue: Queue) -> None:
    queue.conn.execute("SET session_replication_role = replica")
    queue.conn.execute(
        "INSERT INTO messages.message (topic, payload) SELECT 'topic-' || n %% 100, '1' "
        "FROM generate_series(1, 1000000) AS n",
        [],
    )

    own = Site(shown.dsn, statement_timeout="5s")
    try:
        for path in ("/", "/topics", "/topics/topic-1", "/schedules", "/workers"):
            # Again, if other tests kept the machine busy: a page that always takes too long still fails.
            eventually(lambda path=path: httpx.get(own.url + path, headers={"accept": "text/html"}).is_success)
    finally:
        own.stop()


def condition(queue: Queue, kind: str, topic: str = "", what: str = "it is so", fix: str = "") -> None:
    """Report a problem."""
    statement = "INSERT INTO messages.condition (kind, topic, since, what, fix) VALUES (%s, %s, now(), %s, %s)"
    queue.conn.execute(statement, [kind, topic, what, fix])


def test_a_problem_of_an_unknown_kind_is_shown_with_its_fix(visitor: Visitor, queue: Queue) -> None:
    condition(queue, "new_kind", "mail", "topic mail waits for an hour", "run `pgrouse fix mail`")

    page = visitor.open("/")

    expect(page.locator("#problems")).to_contain_text("topic mail waits for an hour")
    expect(page.locator("#problems code")).to_have_text("pgrouse fix mail")


def wrong(queue: Queue) -> None:
    """A topic without a worker, one whose breaker is open, one where many die, and two more.

    One is paused on purpose, and one is well.
    """
    queue.call("register_worker", "w", "host", 1, "1.0", ["mail", "payments", "reports", "well"], 10)
    queue.policy("mail", breaker={"pause": "10m"})
    open_breaker(queue, "mail")
    queue.publish_many(101, "payments")
    queue.settle("fail", queue.claim("payments", limit=101), ["boom"] * 101)
    for topic in ("orphan", "reports"):
        queue.publish(topic, wait="-10 minutes")
    queue.call("pause", "reports", "on purpose")
    queue.publish("well")
    queue.call("update_conditions")


def test_problems_come_first_and_are_counted_in_navigation_and_title(visitor: Visitor, queue: Queue) -> None:
    wrong(queue)

    page = visitor.open("/")

    strip = page.locator("#problems")
    expect(strip.locator("h2")).to_have_text("3 problems")
    expect(strip.locator("li .badge")).to_have_text(["no worker", "breaker open", "many dead"])
    assert "`" not in strip.inner_text()
    expect(page).to_have_title("(3) Overview · pgrouse")
    expect(page.locator("#problem-count")).to_contain_text("3")
    for size in (WIDE, NARROW):
        page.set_viewport_size(size)  # type: ignore[arg-type]
        expect(strip).to_be_in_viewport()
        problems, figures = (
            page.evaluate("id => document.getElementById(id).getBoundingClientRect().top", each)
            for each in ("problems", "figures")
        )
        assert problems < figures
        assert overflow(page) == 0
    assert page.evaluate("getComputedStyle(document.getElementById('menu'), '::after').content") == '"3"'


@pytest.mark.long
def test_a_problem_is_fixed_by_its_button_and_the_count_follows(visitor: Visitor, queue: Queue) -> None:
    wrong(queue)
    page = visitor.open("/")
    is_live(page)

    page.get_by_role("button", name="Pause orphan").click()
    page.locator("#confirm").get_by_role("button", name="Pause").click()

    expect(page.locator("#toasts")).to_contain_text("orphan is paused")
    assert queue.value("SELECT paused_at IS NOT NULL FROM messages.topic WHERE topic = 'orphan'")
    queue.call("update_conditions")
    expect(page.locator("#problems h2")).to_have_text("2 problems")
    expect(page).to_have_title("(2) Overview · pgrouse")
    expect(page.locator("#problem-count")).to_contain_text("2")


@pytest.mark.long
def test_each_button_of_a_problem_leads_to_a_page(site: Site, queue: Queue) -> None:
    queue.publish("a")
    for kind in (*KINDS, "unknown"):
        for topic in ("", "a&b?c/d") if kind == "unknown" else ("a",):
            condition(queue, kind, topic, fix="do this")

    shown = httpx.get(site.url).text
    strip = shown[shown.index('id="problems"') : shown.index('id="figures"')]
    links = [html.unescape(each) for each in re.findall(r'href="([^"]*)"', strip)]

    assert len(links) > len(KINDS)
    assert {link: httpx.get(site.url + link).status_code for link in set(links) - {"/doctor?now=1"}} == dict.fromkeys(
        set(links) - {"/doctor?now=1"}, 200
    )


def test_the_maintenance_can_be_run_where_pg_cron_is_late(visitor: Visitor, queue: Queue) -> None:
    condition(queue, "cron_late")
    page = visitor.open("/")

    page.get_by_role("button", name="Run the maintenance").click()

    expect(page.locator("#toasts")).to_contain_text("The maintenance ran.")
    expect(page.locator("#problems")).to_contain_text("No problems found.")


def test_an_action_is_answered_though_its_button_is_gone_by_then(visitor: Visitor, queue: Queue) -> None:
    """What the action changes may reach the page before the answer does: as a live update, which removes the button."""
    condition(queue, "cron_late")
    page, answered = visitor.open("/"), []
    page.route("**/maintenance", lambda route: answered.append((route, route.fetch())))

    page.get_by_role("button", name="Run the maintenance").click()
    expect(page.locator("#problems")).to_contain_text("No problems found.")
    route, response = answered[0]
    route.fulfill(response=response)

    expect(page.locator("#toasts")).to_contain_text("The maintenance ran.")


@pytest.mark.long
def test_a_page_that_is_not_live_counts_the_problems_too(visitor: Visitor, queue: Queue) -> None:
    wrong(queue)

    for path in ("/messages", "/audit"):
        page = visitor.open(path)

        expect(page.locator("#problem-count")).to_contain_text("3")
        expect(page).to_have_title(re.compile(r"^\(3\) .* · pgrouse$"))


@pytest.mark.long
def test_topics_page_and_overview_agree_on_what_is_a_problem(visitor: Visitor, queue: Queue) -> None:
    wrong(queue)

    page = visitor.open("/topics")

    badges = {
        row.locator("th a").inner_text(): [
            (badge.inner_text(), (badge.get_attribute("class") or "").split()[-1])
            for badge in row.locator(".badge").all()
        ]
        for row in page.locator("#list tbody tr").all()
    }
    assert badges == {
        "mail": [("breaker open", "bad")],
        "orphan": [("no worker", "bad")],
        "payments": [("many dead", "bad")],
        "reports": [("paused", "info")],
        "well": [("on", "good")],
    }


def test_a_token_of_some_topics_counts_only_their_problems(site: Site, queue: Queue, as_token: Any) -> None:
    wrong(queue)
    condition(queue, "snapshot_held", what="a secret name")

    shown = httpx.get(site.url, headers=as_token("viewer", topics=("mail*",))).text

    assert "<title>(1) Overview" in shown
    assert "the breaker of mail is open" in shown
    assert "a secret name" not in shown
    assert "orphan" not in shown
    assert "<button" not in shown[shown.index('id="problems"') : shown.index('id="figures"')]


# Two are called as columns of a chart are.
NAMES = ("a", "b", "c", "d", "at", "s", "success")


@pytest.mark.long
def test_the_charts_have_a_line_for_each_of_the_busiest_topics(visitor: Visitor, queue: Queue) -> None:
    for number in range(7):
        queue.conn.execute(
            "INSERT INTO messages.measure (minute, topic, success, failed, rejected, retried)"
            " VALUES (date_trunc('minute', now()) - interval '2 min', %s, %s, 1, 0, 0)",
            [NAMES[number], 100 * (number + 1)],
        )
    page = visitor.open("/?of=6h")

    page.get_by_role("link", name="topic", exact=True).click()

    page.wait_for_url("**of=6h&by=topic")
    names = page.locator("#throughput .legend li:not(.soft) span").all_inner_texts()
    assert [name.split()[0] for name in names] == [NAMES[number] for number in (6, 5, 4, 3, 2)]
    is_live(page)
    expect(page.get_by_role("link", name="24h")).to_have_attribute("href", "/?of=24h&by=topic")


@pytest.mark.long
def test_the_charts_have_a_line_for_each_of_the_busiest_workers(visitor: Visitor, queue: Queue) -> None:
    for number in range(7):
        queue.conn.execute(
            "INSERT INTO messages.worker_measure (minute, worker, success, failed)"
            " VALUES (date_trunc('minute', now()) - interval '2 min', %s, %s, 1)",
            [f"w-{number}", 100 * (number + 1)],
        )
    page = visitor.open("/?of=6h")

    page.get_by_role("link", name="worker", exact=True).click()

    page.wait_for_url("**of=6h&by=worker")
    names = page.locator("#throughput .legend li:not(.soft) span").all_inner_texts()
    assert [name.split()[0] for name in names] == ["w-6", "w-5", "w-4", "w-3", "w-2"]
    expect(page.locator("#throughput figcaption")).to_contain_text("of the busiest workers")
    is_live(page)


def test_charts_by_worker_are_for_tokens_of_all_topics(site: Site, queue: Queue, as_token: Any) -> None:
    headers = as_token("viewer", topics=("mail*",)) | {"accept": "text/html"}

    assert httpx.get(f"{site.url}/?by=worker", headers=headers).status_code == 403
    assert "by=worker" not in httpx.get(site.url, headers=headers).text


def test_a_chart_by_topic_names_only_topics_of_the_token(site: Site, queue: Queue, as_token: Any) -> None:
    for topic in ("mail", "secret"):
        queue.conn.execute(
            "INSERT INTO messages.measure (minute, topic, success) VALUES (date_trunc('minute', now()), %s, 5)", [topic]
        )
    headers = as_token("viewer", topics=("mail*",)) | {"accept": "text/html"}

    text = httpx.get(f"{site.url}/?by=topic", headers=headers).text

    assert "mail" in text
    assert "secret" not in text
    assert httpx.get(f"{site.url}/?by=nothing", headers=headers).status_code == 404


@pytest.mark.long
def test_another_period_is_a_link(visitor: Visitor, queue: Queue) -> None:
    sample_data.measured(queue)

    page = visitor.open("/")
    page.get_by_role("link", name="24h").click()

    expect(page.locator("#throughput figcaption")).to_contain_text("in the last day")


@pytest.mark.long
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
