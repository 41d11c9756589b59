"""The workers are down: it is the first thing that every page says."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from tests.daemon.process import Daemon, Journal
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue
from tests.web.site import NARROW, WIDE, Site, Visitor, is_live, overflow

NAMES = ("worker-1", "worker-2")


@pytest.fixture
def daemons(shown: Database, tmp_path: Path) -> Iterator[list[Daemon]]:
    """Two daemons that handle the topic `job`."""
    journal = Journal(tmp_path / "journal")
    started = []
    for name in NAMES:
        (folder := tmp_path / name).mkdir()
        settings = {"database": {"dsn": shown.dsn}, "topics": {"job": "work:act"}, "worker": {"name": name}}
        started.append(Daemon(folder, journal, settings))
    yield started
    for each in started:
        each.kill()


def let_time_pass(queue: Queue) -> None:
    """Let the workers be silent for a minute."""
    queue.conn.execute("UPDATE messages.worker SET seen_at = seen_at - interval '1 minute'")


def test_when_all_daemons_are_killed_while_messages_are_published_it_is_the_first_thing(
    visitor: Visitor, queue: Queue, daemons: list[Daemon]
) -> None:
    eventually(lambda: queue.value("SELECT count(*) = 2 FROM messages.worker_state WHERE alive"))
    page = visitor.open("/")
    expect(page).to_have_title("Overview · pgrouse")
    is_live(page)

    for each in daemons:
        each.send(signal.SIGKILL)
        each.exit_code()
    for topic in ("job", "mail", "orders"):
        queue.publish_many(5, topic)
    let_time_pass(queue)

    first = page.locator("#problems li").first
    expect(first.locator(".badge")).to_have_text("workers down")
    for name in NAMES:
        expect(first).to_contain_text(re.compile(rf"{name}:\S+ was last seen at "))
    expect(page.locator("#problems li")).to_have_count(1)
    expect(page).to_have_title("(1: workers down) Overview · pgrouse")
    expect(page.locator("#problem-count")).to_contain_text("workers down")
    for size in (WIDE, NARROW):
        page.set_viewport_size(size)  # type: ignore[arg-type]
        expect(first).to_be_in_viewport()
        assert overflow(page) == 0

    queue.call("register_worker", "new", "host", 1, "1.0", ["job", "mail", "orders"], 1)

    expect(page.locator("#problems")).to_contain_text("No problems found.")
    expect(page).to_have_title("Overview · pgrouse")


@pytest.mark.long
def test_every_page_says_it_in_its_title_and_navigation(visitor: Visitor, queue: Queue) -> None:
    queue.call("register_worker", "worker-1", "host", 1, "1.0", ["t"], 1)
    let_time_pass(queue)

    for path in ("/topics", "/messages", "/runbooks"):
        page = visitor.open(path)

        expect(page.locator("#problem-count")).to_contain_text("workers down")
        expect(page).to_have_title(re.compile(r"^\(1: workers down\) "))


def test_a_token_of_some_topics_is_told_it_without_the_names(site: Site, queue: Queue, as_token: Any) -> None:
    queue.call("register_worker", "secret-host", "host", 1, "1.0", ["t"], 1)
    let_time_pass(queue)

    text = httpx.get(site.url, headers=as_token("viewer", topics=("mail*",)) | {"accept": "text/html"}).text

    assert "no worker is alive" in text
    assert "secret-host" not in text


def test_the_overview_says_who_ran_the_maintenance(visitor: Visitor, queue: Queue) -> None:
    queue.rows("SELECT * FROM messages.tick('daemon')")
    queue.conn.execute("UPDATE messages.tick_mark SET ran_at = ran_at - interval '1 hour'")
    queue.rows("SELECT * FROM messages.tick('web')")

    page = visitor.open("/")

    expect(page.locator("#state")).to_contain_text("by a web server")


@pytest.mark.long
def test_alerts_topic_and_doctor_say_it_in_full_once_and_what_to_do(visitor: Visitor, queue: Queue) -> None:
    for name in NAMES:
        queue.call("register_worker", name, "host", 1, "1.0", ["job"], 1)
    queue.publish("job")
    let_time_pass(queue)
    # For 30 seconds after its start the server does not know who lives.
    eventually(lambda: queue.rows("SELECT FROM messages.workers_down()"))

    row = visitor.open("/alerts").locator("tr", has_text="Workers down")
    said, advice = row.locator(".told").first, row.locator(".told").last
    expect(said).to_contain_text(re.compile(r"worker-2 was last seen at .+, worker-1 was last seen at .+ UTC"))
    assert said.evaluate("each => each.scrollWidth <= each.clientWidth")
    expect(advice.locator("code").first).to_have_text("pgrouse run")

    state = visitor.open("/topics/job").locator("#state")
    expect(state.locator(".badge.bad")).to_have_text("no worker")
    expect(state.get_by_role("link", name="Runbook")).to_have_attribute("href", re.compile("#workers-down$"))

    findings = visitor.open("/doctor?now=1").locator("#findings")
    finding = findings.locator(".fail", has_text="no worker is alive")
    expect(finding).to_have_count(1)
    expect(finding.locator(".wrap code").filter(has_text="pgrouse run")).to_have_count(1)
    expect(findings).not_to_contain_text("no live worker handles")
