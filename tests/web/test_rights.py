"""What each caller sees on the pages of topics, schedules and workers, and whether it may act there."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from tests.server.postgres import Database
from tests.sql.queue import Queue
from tests.web import sample_data
from tests.web.site import Site, Visitor, is_live

ACTIONS = {
    "/topics/mail/pause": {},
    "/topics/mail/resume": {},
    "/topics/*/pause": {},
    "/topics/mail/policy": {"max_attempts": "9", "was": '{"max_attempts": ""}'},
    "/topics/mail/preview": {"max_attempts": "9", "was": '{"max_attempts": ""}'},
    "/schedules": {"name": "s", "cron": "@daily", "topic": "mail"},
    "/schedules/nightly/run": {},
    "/schedules/nightly/pause": {},
    "/schedules/nightly/remove": {},
    "/workers/drain": {"name": "w-1"},
    "/workers/scale": {"name": "w-1", "concurrency": "3"},
}


@pytest.fixture
def ready(queue: Queue) -> Queue:
    """Two topics, each with a schedule; one has a worker."""
    queue.publish("mail")
    queue.publish("orders")
    queue.schedule("nightly", "0 3 * * *", topic="mail")
    queue.schedule("hourly", "0 * * * *", topic="orders")
    sample_data.worker(queue, "w-1", ("mail", "orders"))
    return queue


@pytest.mark.long
def test_a_viewer_sees_live_pages_and_no_button_that_acts(visitor: Visitor, ready: Queue, as_token: Any) -> None:
    page = visitor.open("/topics", extra_http_headers=as_token("viewer"))
    is_live(page)

    for path in ("/topics", "/topics/mail", "/schedules", "/schedules/nightly", "/workers"):
        page.goto(path)
        expect(page.locator("main form[method=post] button, main button.main, main button.danger")).to_have_count(0)


def test_problems_of_the_whole_fleet_are_shown_only_to_tokens_of_all_topics(
    site: Site, queue: Queue, as_token: Any
) -> None:
    queue.conn.execute(
        "INSERT INTO messages.condition (kind, topic, since, what, fix) VALUES "
        "('listener_degraded', '', now(), 'worker payroll:77 receives nothing', ''), ('backlog', 'orders', "
        "now(), 'orders waits', '')"
    )

    for topic, sees_all in (("*", True), ("orders", False)):
        page = httpx.get(site.url, headers=as_token("viewer", topics=(topic,), name=f"of-{sees_all}")).text

        assert ("payroll" in page, "orders waits" in page) == (sees_all, True)


@pytest.mark.long
@pytest.mark.parametrize("role", ["viewer", "operator of other topics"])
def test_a_viewer_cannot_act(site: Site, ready: Queue, as_token: Any, role: str) -> None:
    headers = as_token("viewer") if role == "viewer" else as_token("operator", topics=("orders",))

    answers = {
        path: httpx.post(site.url + path, headers=headers, data=data).status_code for path, data in ACTIONS.items()
    }

    assert set(answers.values()) <= {403, 404}, answers
    assert ready.value("SELECT count(*) FROM messages.topic WHERE topic <> '*'") == 0
    assert ready.value("SELECT count(*) FROM messages.schedule WHERE paused_at IS NULL") == 2
    assert ready.value("SELECT count(*) FROM messages.message") == 2
    assert ready.value("SELECT drain_asked_at FROM messages.worker") is None
    assert ready.value("SELECT requested_concurrency FROM messages.worker") is None


@pytest.mark.long
def test_a_token_sees_only_its_topics(site: Site, ready: Queue, as_token: Any) -> None:
    sample_data.measured(ready, "mail", success=600)
    headers = as_token("viewer", topics=("orders*",)) | {"accept": "text/html"}

    def text(path: str) -> str:
        return httpx.get(site.url + path, headers=headers).text

    overview, topics, schedules, workers = map(text, ("/", "/topics", "/schedules", "/workers"))
    assert ["mail" in page for page in (overview, topics, schedules, workers)] == [False] * 4
    assert all("orders" in page for page in (overview, topics, schedules, workers))
    assert "Attempts per second by how they ended: 0 succeeded" in overview
    assert httpx.get(f"{site.url}/topics/mail", headers=headers).status_code == 403
    assert httpx.get(f"{site.url}/schedules/nightly", headers=headers).status_code == 404


@pytest.mark.long
def test_a_database_user_with_only_the_operator_role_has_all_pages_and_actions(shown: Database, ready: Queue) -> None:
    sample_data.measured(ready)
    site = Site(f"{shown.dsn} options='-c role=messages_operator'")
    pages = ["/", "/topics", "/topics/mail", "/topics/*", "/schedules", "/schedules/nightly", "/workers"]

    seen = {path: httpx.get(site.url + path).status_code for path in pages}
    acted = {path: httpx.post(site.url + path, data=data).status_code for path, data in ACTIONS.items()}
    site.stop()

    assert set(seen.values()) == {200}, seen
    assert set(acted.values()) <= {200, 303}, acted
