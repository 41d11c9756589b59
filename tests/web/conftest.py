"""Fixtures for the tests of the dashboard.

There is one browser, one web server and one database; each test has an empty queue.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from pgrouse.web.access import tokens
from tests.server.postgres import Database, Postgres
from tests.sql.queue import Queue
from tests.web.chromium import ARGUMENTS, CHROMIUM, NO_CHROMIUM
from tests.web.site import Site, Visitor

EMPTY = """
  TRUNCATE messages.message, messages.message_archive, messages.schedule, messages.worker, messages.sleeper,
    messages.measure, messages.worker_measure,
    messages.channel, messages.breaker, messages.rate, messages.depth, messages.alert, messages.alert_sink,
    messages.subscription, messages.condition, messages.audit,
    messages.depth_change, messages.dead_count, messages.export_cursor,
    messages.tick_mark, messages.low_water, messages.redrive_log, messages.dead_letter, messages.silence,
    messages.predecessor_list, messages.blocked_message, messages.dependency, messages.end_event,
    messages.batch, messages.batch_shard, messages.batch_change, messages.batch_callback,
    messages.step RESTART IDENTITY CASCADE;
  DELETE FROM messages.topic WHERE topic <> '*';
  UPDATE messages.topic
  SET max_attempts = 1, paused_at = NULL, resume_at = NULL, paused_by = NULL, paused_reason = NULL;
  DELETE FROM messages.token;
  TRUNCATE messages.audit RESTART IDENTITY"""


# The timeout of httpx for an answer unless a test sets another: its default of 5 s is too short on a busy machine.
httpx._config.DEFAULT_TIMEOUT_CONFIG.read = 60


class Chromium:
    """One browser for all tests of this folder.

    Playwright keeps a loop running in this thread: no other test could start one.
    """

    def __init__(self) -> None:
        self._ends = ExitStack()
        self._browser: Browser | None = None

    def browser(self) -> Browser:
        """Return it; the first call starts it."""
        if self._browser is None:
            playwright = self._ends.enter_context(sync_playwright())
            self._browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS, timeout=90_000)
            self._ends.callback(self._browser.close)
        return self._browser

    def close(self) -> None:
        """End it."""
        self._browser = None
        self._ends.close()


_chromium = Chromium()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Generator[None, None, None]:
    """Close the browser before tests of another folder."""
    yield
    if nextitem is None or Path(__file__).parent not in nextitem.path.parents:
        _chromium.close()


@pytest.fixture
def browser() -> Browser:
    """The browser."""
    if not Path(CHROMIUM).exists():
        pytest.skip(NO_CHROMIUM)
    expect.set_options(timeout=30_000)
    return _chromium.browser()


@pytest.fixture(scope="module")
def shown(server: Postgres) -> Iterator[Database]:
    """The database of a module."""
    with server.new_database(template=server.migrated) as database:
        yield database


@pytest.fixture(scope="module")
def site(shown: Database) -> Iterator[Site]:
    """The web server of a module.

    What it imports is left out by the collector of garbage, as all that was there before.
    """
    site = Site(shown.dsn)
    gc.collect()
    gc.freeze()
    yield site
    site.stop()


@pytest.fixture
def db(shown: Database) -> psycopg.Connection[Any]:
    """An autocommit connection to the database that the pages show; the queue is empty."""
    conn = shown.connect()
    _empty(conn)
    return conn


def _empty(conn: psycopg.Connection[Any]) -> None:
    """Empty the queue. The server may still read for the page of the test before, and the two may deadlock."""
    for _ in range(10):
        with suppress(psycopg.errors.DeadlockDetected):
            conn.execute(EMPTY)
            return
    conn.execute(EMPTY)


@pytest.fixture
def as_token(queue: Queue) -> Callable[..., dict[str, str]]:
    """`as_token("viewer", topics=("mail*",))` creates a token and returns its headers.

    From then on local clients need one.
    """

    def make(*roles: str, topics: tuple[str, ...] = ("*",), name: str = "test") -> dict[str, str]:
        token = tokens.new()
        query = "SELECT messages.add_token(%s, %s, %s, %s)"
        queue.conn.execute(query, [name, tokens.digest(token), list(roles), list(topics)])
        return {"Authorization": f"Bearer {token}"}

    return make


@pytest.fixture
def visitor(browser: Browser, site: Site, queue: Queue) -> Iterator[Visitor]:
    """`visitor.open("/topics")` opens a page. Any complaint of the browser fails the test."""
    # A late request of the test before may have found its tokens.
    site.server.application.state.token_cache._has_tokens = (0.0, False)
    visitor = Visitor(browser, site)
    yield visitor
    assert visitor.leave() == []
