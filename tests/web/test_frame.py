"""Common parts of all pages: navigation, keys, themes, narrow screens, size, and accessibility."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import httpx
import pytest
from playwright.sync_api import TimeoutError, expect  # noqa: A004 - of a page that is not reached

from tests.durations import DURATIONS
from tests.sql.queue import Queue
from tests.web import sample_data
from tests.web.accessible import complaints
from tests.web.site import NARROW, WIDE, Site, Visitor, broken_words, is_live, overflow

PAGES = ["/", "/topics", "/topics/mail", "/topics/*", "/schedules", "/schedules/nightly", "/workers"]
MOST_BYTES = 200_000


@pytest.mark.long
def test_g_and_a_letter_open_a_page(visitor: Visitor, eventually: Callable[..., Any]) -> None:
    page = visitor.open("/")

    def types(letter: str, leads_to: str) -> bool:
        # Two keys with seconds between them, as on a machine that pauses, are no pair.
        page.keyboard.type(f"g{letter}")
        with suppress(TimeoutError):
            page.wait_for_url(f"**{leads_to}", timeout=5_000)
        return page.url.endswith(leads_to)

    for letter, leads_to in {"t": "/topics", "s": "/schedules", "w": "/workers"}.items():
        eventually(lambda pair=(letter, leads_to): types(*pair))
        expect(page.locator("#pages [aria-current=page]")).to_have_attribute("href", leads_to)


@pytest.mark.long
def test_shortcuts_reach_search_help_and_rows_and_are_letters_in_a_field(visitor: Visitor, queue: Queue) -> None:
    queue.publish("mail")
    page = visitor.open("/topics")

    page.keyboard.press("/")
    expect(page.locator("#search")).to_be_focused()
    page.keyboard.type("g?t/")
    expect(page.locator("#search")).to_have_value("g?t/")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    expect(page.get_by_role("link", name="mail")).to_be_focused()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Keys")).to_be_hidden()


@pytest.mark.long
def test_the_first_tab_skips_the_navigation(visitor: Visitor) -> None:
    page = visitor.open("/")

    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")

    expect(page.locator("main")).to_be_focused()


@pytest.mark.long
def test_the_theme_follows_the_system_until_the_user_chooses_one(visitor: Visitor) -> None:
    page = visitor.open("/", color_scheme="dark")

    def paper() -> int:
        return int(page.evaluate("parseInt(getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0])"))

    by_the_system = paper()
    page.get_by_role("button", name="Use the light theme").click()
    chosen = paper()
    page.reload()

    assert (by_the_system < 40, chosen > 200, paper() > 200) == (True, True, True)
    page.get_by_role("button", name="Use the dark theme").click()
    page.get_by_role("button", name="Use the system's theme").click()
    page.emulate_media(color_scheme="light")
    assert paper() > 200
    page.reload()
    expect(page.get_by_role("button", name="Use the dark theme")).to_be_visible()


def test_a_narrow_screen_folds_the_navigation_and_never_scrolls_sideways(visitor: Visitor, queue: Queue) -> None:
    sample_data.busy(queue)
    queue.schedule("a-rather-long-name-of-a-schedule-of-some-user", topic="a.rather.long.name.of.a.topic.of.some.user")
    page = visitor.open("/", size=NARROW)
    expect(page.locator("#pages")).to_be_hidden()
    level = page.locator("#problem-count [data-count]").get_attribute("data-level")
    expect(page.locator("#menu")).to_have_attribute("data-level", level or "")

    widths = {}
    for path in PAGES:
        page.goto(path)
        widths[path] = overflow(page)
    page.get_by_role("button", name="Menu").click()

    expect(page.locator("#pages")).to_be_visible()
    assert widths == dict.fromkeys(PAGES, 0)


def test_filters_fold_on_a_narrow_screen_unless_some_are_set(visitor: Visitor, queue: Queue) -> None:
    queue.publish("mail")
    page = visitor.open("/messages", size=NARROW)
    expect(page.get_by_label("Topic", exact=True)).not_to_be_visible()

    page.get_by_text("Filters", exact=True).click()
    expect(page.get_by_label("Topic", exact=True)).to_be_visible()
    page.set_viewport_size(WIDE)
    expect(page.get_by_text("Filters", exact=True)).not_to_be_visible()
    expect(page.get_by_label("Topic", exact=True)).to_be_visible()
    page.set_viewport_size(NARROW)
    page.goto("/messages?topic=mail")

    expect(page.get_by_label("Topic", exact=True)).to_be_visible()


@pytest.mark.long
def test_the_layout_does_not_shift_while_a_page_loads(visitor: Visitor, queue: Queue) -> None:
    sample_data.busy(queue)
    page = visitor.open("/")
    page.evaluate(
        """window.moved = 0; new PerformanceObserver((list) => {
             for (const entry of list.getEntries()) window.moved += entry.value;
           }).observe({type: "layout-shift", buffered: true})"""
    )
    is_live(page)
    expect(page.locator("#latencies canvas")).to_be_visible()

    assert page.evaluate("window.moved") < 0.02


@pytest.mark.long
def test_no_word_of_a_table_is_broken(visitor: Visitor, queue: Queue) -> None:
    sample_data.busy(queue)
    queue.policy("payment.capture", max_attempts=3)
    queue.call("pause", "payment.capture", "the provider is down, and it says that this will last for some hours")
    sample_data.died(queue, "payment.capture")
    queue.call("drain_worker", "w-1")
    queue.publish("orphan", wait="-10 minutes")
    queue.call("update_conditions")
    page = visitor.open("/")

    found = {}
    for path in ("/", "/topics", "/audit", "/workers", "/dead", "/schedules", "/messages", "/alerts?show=all"):
        page.goto(path)
        for size in (WIDE, NARROW):
            page.set_viewport_size(size)
            found[path, size["width"]] = broken_words(page)

    assert {shown: words for shown, words in found.items() if words} == {}


@pytest.mark.long
def test_the_first_page_transfers_less_than_200_kb(visitor: Visitor, queue: Queue) -> None:
    sample_data.busy(queue)
    page = visitor.open("/")
    is_live(page)

    weights = page.evaluate("performance.getEntries().filter(e => 'decodedBodySize' in e).map(e => e.decodedBodySize)")

    assert 50_000 < sum(weights) < MOST_BYTES


@pytest.mark.long
def test_pages_are_compressed_and_answers_of_the_api_are_not(visitor: Visitor, queue: Queue) -> None:
    queue.publish_many(50)
    url = visitor.site.url
    page, api = (
        httpx.get(f"{url}{path}", headers={"accept": accept, "accept-encoding": "gzip"})
        for path, accept in (("/messages", "text/html"), ("/v1/messages", "application/json"))
    )

    assert page.headers["content-encoding"] == "gzip"
    assert int(page.headers["content-length"]) < len(page.content) / 4
    assert "content-encoding" not in api.headers


def test_an_error_page_keeps_the_navigation(visitor: Visitor, queue: Queue) -> None:
    visitor.expected = ["404"]

    page = visitor.open("/nowhere")

    expect(page.get_by_role("heading", level=1)).to_have_text("Not found")
    expect(page.locator("#pages")).to_be_visible()
    expect(page.get_by_role("link", name="Try again")).to_have_count(0)


@pytest.mark.long
def test_a_page_that_failed_is_tried_again(visitor: Visitor, queue: Queue) -> None:
    visitor.expected = ["503"]
    alone = Site("postgresql://127.0.0.1:1/nothing")
    try:
        text = httpx.get(f"{alone.url}/topics", headers={"accept": "text/html"}).text
    finally:
        alone.stop()

    assert ">Try again</a>" in text
    assert '<meta http-equiv="refresh" content="5">' in text
    assert 'href="/runbooks#database-unreachable"' in text


@pytest.mark.long
def test_a_suspicious_request_gets_no_page_and_one_that_is_too_large_does(site: Site, queue: Queue) -> None:
    html = {"accept": "text/html"}
    foreign = httpx.post(f"{site.url}/topics/mail/pause", headers=html | {"origin": "https://evil.example"}, data={})
    rebound = httpx.get(f"{site.url}/topics", headers=html | {"host": "evil.example"})
    large = httpx.post(f"{site.url}/messages/new", headers=html, content=b"x" * (site.settings.web.max_body_bytes + 1))

    for refused, status in ((foreign, 403), (rebound, 421)):
        assert (refused.status_code, refused.headers["content-type"]) == (status, "application/problem+json")
        assert "csrf" not in refused.text
    assert large.status_code == 413
    assert large.headers["content-type"].startswith("text/html")
    assert "web.max_body_bytes" in large.text


@pytest.mark.long
def test_a_page_loads_nothing_from_other_sites_and_has_no_inline_script(visitor: Visitor, queue: Queue) -> None:
    sample_data.busy(queue)
    page = visitor.open("/")
    is_live(page)

    asked = page.evaluate("performance.getEntriesByType('resource').map(e => new URL(e.name).origin)")

    assert set(asked) == {visitor.site.url}
    assert (
        page.locator("script:not([src]), [style], [onclick]").evaluate_all(
            "all => all.filter(e => !e.closest('.uplot')).length"
        )
        == 0
    )


# Each further page is checked by a test in the file about it.
@pytest.mark.parametrize(
    "paths",
    [
        ["/", "/topics/mail", "/schedules/nightly", "/workers", "/messages", "/messages/1"],
        pytest.param(["/topics", "/topics/*", "/topics/nothing", "/schedules"], marks=pytest.mark.long),
        pytest.param(["/alerts", "/archive", "/doctor", "/tokens"], marks=pytest.mark.long),
    ],
)
def test_axe_finds_nothing_in_light_and_dark_mode(visitor: Visitor, queue: Queue, paths: list[str]) -> None:
    sample_data.busy(queue)
    queue.call("pause", "orders.created", "the relay is down")
    visitor.expected = ["404"]

    assert [each for path in paths for each in complaints(visitor, path)] == []


def test_durations_are_formatted_alike_by_browser_and_server(visitor: Visitor) -> None:
    page = visitor.open("/")

    shown = page.evaluate("all => all.map(duration)", [seconds for seconds, _ in DURATIONS])

    assert shown == [text for _, text in DURATIONS]
