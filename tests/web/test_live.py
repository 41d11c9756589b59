"""Pages that update themselves."""

from __future__ import annotations

import asyncio
import http.client
import re
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from pgrouse.client.connection.listening import ListenConnection
from pgrouse.web.access import database_pool
from pgrouse.web.live import change_listener, live_updates
from tests.daemon.receiver import reserved
from tests.server.postgres import Database, Postgres
from tests.sql.queue import Queue
from tests.web import sample_data
from tests.web.site import Site, Visitor, is_live

Eventually = Callable[..., Any]


def test_a_change_appears_without_a_reload_and_typed_text_remains(visitor: Visitor, queue: Queue) -> None:
    sample_data.worker(queue)
    queue.publish("mail")
    page = visitor.open("/topics/mail")
    is_live(page)
    page.locator("#policy-form summary").first.click()
    page.locator("[name=max_attempts]").fill("7")

    queue.publish_many(41, "mail")

    expect(page.locator("#figures .value").first).to_have_text("42")
    expect(page.locator("[name=max_attempts]")).to_have_value("7")


@pytest.mark.long
def test_charts_are_updated(visitor: Visitor, queue: Queue) -> None:
    page = visitor.open("/")
    is_live(page)

    queue.conn.execute(
        "INSERT INTO messages.measure (minute, topic, success) "
        "SELECT date_trunc('minute', now()) - n * interval '1 min', 'mail', 1200 FROM generate_series(0, 2) AS n"
    )

    expect(page.locator("#throughput .legend b").first).not_to_have_text("0")


def test_a_slow_read_does_not_leave_a_page_behind(site: Site, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    # As after a read of minutes.
    monkeypatch.setattr(live_updates, "MAX_READ_SHARE", 1e-6)
    monkeypatch.setattr(live_updates, "MAX_PAUSE_S", 0.5)
    with stream(site) as events:
        events.next("update")

        queue.publish("late.topic")

        events.next("update", "late.topic")


def test_a_change_appears_without_a_poll(site: Site, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_updates, "MAX_AGE_S", 3600.0)
    monkeypatch.setattr(live_updates, "MAX_READ_SHARE", 1.0)
    with stream(site) as events:
        events.next("update")
        # That it takes half a second is measured by bench/dashboard.py.
        for n in range(3):
            queue.publish(f"topic-{n}")
            events.next("update", f"topic-{n}")


@pytest.mark.long
def test_measures_are_read_less_often_than_the_rest(site: Site, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_updates, "MEASURES_MAX_AGE_S", 3600.0)
    with stream(site) as events:
        events.next("update")
        queue.conn.execute(
            "INSERT INTO messages.measure (minute, topic, success) "
            "VALUES (date_trunc('minute', now() - interval '5 min'), 'mail', 1200)"
        )
        queue.publish("counted")

        update = events.next("update", "counted")

        assert '"charts":{}' in update
        monkeypatch.setattr(live_updates, "MEASURES_MAX_AGE_S", 0.0)
        queue.publish("again")
        events.next("update", '"throughput":')


def test_the_last_change_is_sent_once_more_because_a_notification_may_precede_its_visibility(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    positions = iter(["0/1", "0/2", "0/2", "0/2", "0/2"])
    sent: list[str] = []
    at = ""

    of_the_server = change_listener._position

    async def position(connection: ListenConnection) -> str | None:
        nonlocal at
        # The server's own listener may still listen for the viewers of the test before.
        if not threading.current_thread().name.startswith("change_listener"):
            return await of_the_server(connection)
        at = next(positions, "")
        if not at:
            raise LookupError
        return at

    monkeypatch.setattr(change_listener, "_position", position)
    monkeypatch.setattr(change_listener, "POLL_S", 0.01)
    listening = change_listener.ChangeListener(site.live_updates.db.connector, lambda: sent.append(at)).run()
    with ThreadPoolExecutor(1, "change_listener") as threads, pytest.raises(LookupError):
        threads.submit(asyncio.run, listening).result()

    assert sent == ["0/1", "0/2", "0/2"]


def test_ten_viewers_share_one_read(site: Site, queue: Queue, eventually: Eventually) -> None:
    with ExitStack() as viewers:
        streams = [viewers.enter_context(stream(site)) for _ in range(10)]
        for each in streams:
            each.next("update")
        before = site.live_updates.reads
        began = time.monotonic()

        queue.publish("mail")
        for each in streams:
            each.next("update", "mail")

        reads = site.live_updates.reads - before
        assert len(site.live_updates.shared_views) == 1
        assert reads <= 2 + (time.monotonic() - began) / live_updates.MIN_INTERVAL_S

    assert eventually(lambda: not site.live_updates.shared_views)


def test_the_server_reads_and_listens_only_while_a_page_is_open(
    site: Site, queue: Queue, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_updates, "LINGER_S", 0.05)
    with stream(site) as events:
        events.next("update")
        listening = eventually(lambda: listeners(queue))
    eventually(lambda: not site.live_updates.shared_views)
    before = site.live_updates.reads

    queue.publish("mail")

    assert listening
    assert eventually(lambda: listeners(queue) == 0, within_s=30)
    assert site.live_updates.reads == before


def test_pages_with_the_same_rights_share_a_read_and_others_do_not(site: Site, queue: Queue) -> None:
    with stream(site, "/live/topics") as one, stream(site, "/live/topics?subject=mail") as other:
        one.next("update")
        other.next("update")

        assert {audience.subject for audience in site.live_updates.shared_views} == {"", "mail"}


def test_one_token_cannot_take_the_live_pages_of_others(
    site: Site, queue: Queue, as_token: Any, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., Any]
) -> None:
    monkeypatch.setattr(live_updates, "MAX_VIEWERS_OF_TOKEN", 2)
    eventually(lambda: not site.live_updates.viewers_of)
    subjects = [f"/live/messages?subject=topic%3D{number}" for number in range(3)]
    with stream(site, subjects[0]) as one, stream(site, subjects[1]) as other:
        one.next("update")
        other.next("update")
        refused = httpx.get(site.url + subjects[2])
        with httpx.stream("GET", site.url + subjects[2], headers=as_token("viewer")) as allowed:
            assert (refused.status_code, refused.json()["code"]) == (503, "too_many_viewers")
            assert allowed.status_code == 200

    assert eventually(lambda: not site.live_updates.viewers_of)


@contextmanager
def outage(server: Postgres, shown: Database) -> Iterator[None]:
    """Keep programs out of the database."""
    with server.admin() as admin:
        admin.execute(f"ALTER DATABASE {shown.name} ALLOW_CONNECTIONS false".encode())
        try:
            admin.execute(
                "SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity AS a "
                "WHERE a.datname = %s AND a.application_name LIKE 'pgrouse%%'",
                [shown.name],
            )
            yield
        finally:
            admin.execute(f"ALTER DATABASE {shown.name} ALLOW_CONNECTIONS true".encode())


@pytest.mark.long
def test_a_page_shows_that_it_is_not_live_during_an_outage_and_then_recovers(
    visitor: Visitor, shown: Database, server: Postgres, queue: Queue
) -> None:
    visitor.expected = ["503", "ERR_"]
    page = visitor.open("/")
    is_live(page)

    with outage(server, shown):
        expect(page.locator("#stale")).to_contain_text("The database does not answer. What you see is from")
        expect(page.locator("#live")).to_have_text("not live")
        expect(page).to_have_title("(not live) Overview · pgrouse")
        expect(page.get_by_text("No problems found.")).not_to_be_visible()
        expect(page.locator("#stale").get_by_role("link", name="Runbook")).to_be_visible()

    is_live(page)
    expect(page.locator("#stale")).to_be_hidden()
    expect(page).to_have_title("Overview · pgrouse")
    expect(page.get_by_text("No problems found.")).to_be_visible()
    queue.publish("after.the.outage")
    expect(page.locator("#waiting")).to_contain_text("after.the.outage")


@pytest.mark.long
def test_all_pages_notice_an_outage_and_its_end_together(
    visitor: Visitor, shown: Database, server: Postgres, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    visitor.expected = ["503", "ERR_"]
    pages = [visitor.open(path) for path in ("/", "/topics", "/workers", "/messages")]
    for page in pages:
        is_live(page)
    # With one wait after the other, or the pause of a read that took so long, they would still be waiting.
    monkeypatch.setattr(database_pool, "WAIT_S", 20.0)

    with outage(server, shown):
        for page in pages:
            expect(page.locator("#live")).to_have_text("not live")
    for page in pages:
        is_live(page)


@pytest.mark.long
def test_actions_during_an_outage_say_so_and_keep_what_was_typed(
    visitor: Visitor, shown: Database, server: Postgres, queue: Queue
) -> None:
    visitor.expected = ["503", "ERR_"]
    queue.publish("mail")
    topics, preview = visitor.open("/topics"), visitor.open("/messages/preview?act=cancel&topic=mail")
    publish = visitor.open("/messages/new?topic=mail")
    preview.get_by_label("Reason").fill("not wanted")
    publish.get_by_label("Payload").fill("1")

    with outage(server, shown):
        topics.get_by_role("button", name="Pause mail").click()
        expect(topics.locator("#toasts")).to_contain_text("the database does not answer")
        preview.get_by_role("button", name="Cancel it").click()
        expect(preview.locator("body")).to_contain_text(re.compile("the database does not answer", re.IGNORECASE))
        publish.get_by_role("button", name="Publish").click()
        expect(publish.get_by_role("heading", level=1)).to_have_text("Unavailable")
        expect(topics.locator("#live")).to_have_text("not live")
    # The server is still without a connection at this moment, and a click that comes too early fails too.
    is_live(topics)

    # Where the server still knew who it is, the action itself has failed, and offers to try again.
    preview.get_by_role("button", name=re.compile("Cancel it|Try again")).click()
    expect(preview.locator("#progress")).to_contain_text("1 cancelled")
    assert queue.value("SELECT error FROM messages.message_archive") == "cancelled: not wanted"


@pytest.mark.long
def test_a_page_reconnects_to_a_restarted_server(visitor: Visitor, shown: Database, queue: Queue) -> None:
    # The page may reach the server once more before it has stopped.
    visitor.expected = ["503", "ERR_"]
    with reserved() as kept:
        first = Site(shown.dsn, listen=f"127.0.0.1:{kept.getsockname()[1]}")
        page = visitor.open(f"{first.url}/")
        is_live(page)

        first.stop()
        expect(page.locator("#stale")).to_contain_text("The connection to the server is lost.")
        expect(page.locator("#stale").get_by_role("link")).to_be_hidden()
        first.begin(first.address)

        is_live(page)
        expect(page.locator("#stale")).to_be_hidden()
        page.goto("about:blank")
        first.stop()


@pytest.mark.long
def test_a_page_stops_showing_data_after_its_right_is_revoked(
    shown: Database, queue: Queue, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    monkeypatch.setattr(live_updates, "CHECK_EVERY_S", 0)
    monkeypatch.setattr(live_updates, "HEARTBEAT_S", 0.1)
    # A separate server: it remembers that there are tokens.
    site = Site(shown.dsn)
    with stream(site) as events:
        events.next("update")

        queue.conn.execute(
            "INSERT INTO messages.token (name, digest, roles, topics) VALUES ('t', sha256('x'), '{viewer}', '{*}')"
        )

        assert eventually(lambda: events.has_ended)
    site.stop()


def test_a_view_ends_with_its_last_viewer_also_when_it_changes_at_that_moment(
    site: Site, queue: Queue, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    monkeypatch.setattr(live_updates, "MAX_AGE_S", 3600.0)
    updates = site.live_updates
    eventually(lambda: not updates._tasks)
    with stream(site) as events:
        events.next("update")
        (task,) = updates._tasks.values()

        async def change_and_leave() -> bool:
            if is_waiting := bool(updates.changed.next_event()._waiters):
                updates.notify()
                task.cancel()
            return is_waiting

        eventually(lambda: asyncio.run_coroutine_threadsafe(change_and_leave(), task.get_loop()).result(60))

        assert eventually(task.done)


def test_an_unknown_view_is_not_found(site: Site, queue: Queue) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{site.url}/live/nothing", timeout=60)


# A read may take seconds on a busy machine, and then the view rests: see MAX_PAUSE_S.
NEXT_TIMEOUT_S = 120


class Events:
    """A stream of events, read in a thread."""

    def __init__(self, url: str) -> None:
        self.answer = urllib.request.urlopen(url, timeout=60)
        self.received: list[tuple[str, str]] = []
        self.has_ended = False
        self._more = threading.Condition()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *_: object) -> None:
        if self.answer.fp is not None:
            self.answer.fp.raw._sock.shutdown(2)
        self._thread.join(30)
        self.answer.close()

    def next(self, name: str, part: str = "") -> str:
        """Wait for an event of a name with a part in it; earlier ones are dropped."""
        with self._more:
            assert self._more.wait_for(lambda: self._find(name, part) is not None, NEXT_TIMEOUT_S), (
                f"no {name} {part}: {self.received}"
            )
            index = self._find(name, part)
            assert index is not None
            data = self.received[index][1]
            del self.received[: index + 1]
        return data

    def _find(self, name: str, part: str) -> int | None:
        return next((n for n, (kind, data) in enumerate(self.received) if kind == name and part in data), None)

    def _read(self) -> None:
        name = ""
        try:
            for line in self._lines():
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    with self._more:
                        self.received.append((name, line.removeprefix("data: ")))
                        self._more.notify_all()
        except (OSError, http.client.HTTPException, ValueError):
            pass
        finally:
            self.has_ended = True

    def _lines(self) -> Iterator[str]:
        for line in self.answer:
            yield line.decode().rstrip("\n")


def stream(site: Site, path: str = "/live/overview?subject=1h") -> Events:
    """Watch a view as a browser does."""
    return Events(site.url + path)


def listeners(queue: Queue) -> int:
    """Return how many connections of web servers listen to this database."""
    count: int = queue.value(
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND application_name LIKE 'pgrouse listener web%%'",
        [],
    )
    return count
