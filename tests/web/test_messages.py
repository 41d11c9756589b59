"""The list of messages: its filters and pages, and its actions on many messages."""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import Page, expect

from pgrouse.web.page import bulk_actions
from pgrouse.web.pages.messages import messages
from pgrouse.web.search import search
from tests.sql.deaths import die
from tests.sql.queue import Queue
from tests.web.accessible import complaints
from tests.web.site import Site, Visitor, is_live

ROWS = "tbody tr"
# A suggestion for a text that would be read as a number has quotes.
HEADERS = ['code = "42"', "retry = true", "tenant = acme", "tenant = of a dead one"]


def ids(page: Page) -> list[int]:
    """Return the listed ids."""
    return [int(text) for text in page.locator("tbody th a").all_inner_texts()]


@pytest.mark.long
def test_an_empty_queue_explains_how_to_publish(visitor: Visitor) -> None:
    page = visitor.open("/messages")

    expect(page.locator(".empty")).to_contain_text("There are no messages")


def test_the_counts_and_the_list_are_of_one_moment(site: Site, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    read = messages.read_counts

    async def then_claim(*given: Any) -> Any:
        counts = await read(*given)
        queue.claim("mail")
        return counts

    monkeypatch.setattr(messages, "read_counts", then_claim)
    queue.publish_many(3, "mail")

    page = httpx.get(f"{site.url}/messages?state=running", headers={"accept": "text/html"}).text

    assert queue.value("SELECT count(*) FROM messages.message WHERE claim_id IS NOT NULL") == 3
    assert "No message matches" in page, "the tab said 0 running"


@pytest.mark.long
def test_filters_are_in_the_address_and_narrow_the_list(visitor: Visitor, queue: Queue) -> None:
    queue.publish_many(3, "orders")
    wanted = queue.publish("mail", payload={"customer": {"id": 9007199254740993}}, key="k 1")

    page = visitor.open("/messages")
    page.get_by_label("Payload", exact=True).fill("customer.id = 9007199254740993")
    page.keyboard.press("Enter")

    page.wait_for_url("**payload=customer.id*")
    assert ids(page) == [wanted]
    assert ids(visitor.open("/messages?topic=mail&key=k+1&state=ready")) == [wanted]
    expect(visitor.open("/messages?topic=none").locator(".empty")).to_contain_text("No message matches")


@pytest.mark.long
def test_fields_suggest_what_the_listed_messages_have(site: Site, visitor: Visitor, queue: Queue) -> None:
    headers = {"tenant": "acme", "code": "42", "retry": True, "many": [1]}
    published = queue.publish(
        "mail", payload={"customer": {"id": 7}, "text": "x" * 300}, key="k-1", channel="c-1", headers=headers
    )
    die(queue, headers={"tenant": "of a dead one"})

    page = visitor.open("/messages")

    found = {
        name: page.locator(f"#known-{name} option").evaluate_all("each => each.map(o => o.value)")
        for name in ("keys", "channels", "payloads", "headers")
    }
    assert found == {
        "keys": ["k-1"],
        "channels": ["c-1"],
        "payloads": ["customer.id = ", "text = "],
        "headers": HEADERS,
    }
    for header in HEADERS:
        page.goto(f"{site.url}/messages?header={quote(header)}")
        assert len(ids(page)) == 1
    page.goto(f"{site.url}/messages")
    assert page.locator("#known-errors option").count() == 1
    expect(page.locator(f"#m{published} code")).to_have_text(re.compile(r"^.{159}…$"))
    page.get_by_label("Payload", exact=True).fill("customer.id = 7")
    page.keyboard.press("Enter")
    page.wait_for_url("**payload=customer.id*")
    assert len(ids(page)) == 1


@pytest.mark.long
def test_the_list_can_be_sorted_and_says_what_was_sorted(
    site: Site, visitor: Visitor, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    visitor.expected.append("422")
    dead = die(queue, "b")
    first, last = queue.publish_many(2, "a")
    queue.conn.execute("UPDATE messages.message SET attempts = 7, runs = 7 WHERE id = %s", [last])

    page = visitor.open("/messages?topic=")
    page.get_by_label("Sort by").select_option("most attempts")
    page.get_by_role("button", name="Filter", exact=True).click()

    page.wait_for_url("**sort=attempts*")
    assert ids(page) == [last, dead, first]
    for sort, order in {
        "oldest": [dead, first, last],
        "topic": [first, last, dead],
        "worker": [dead, first, last],
    }.items():
        page.goto(f"{site.url}/messages?sort={sort}")
        assert ids(page) == order
    page.goto(f"{site.url}/messages?sort=size")
    expect(page.get_by_role("alert")).to_contain_text("there is no order 'size'")
    page.goto(f"{site.url}/messages?sort=oldest&state=ended&payload=none+%3D+1")
    expect(page.locator("#found")).to_contain_text("No message matches")
    monkeypatch.setattr(search, "MAX_SORTED", 2)
    page.goto(f"{site.url}/messages?sort=oldest")
    expect(page.locator("#found")).to_contain_text(
        "The first 2 of the 2 messages that the search found within its limits; there are more."
    )


def test_a_message_that_waits_for_an_event_is_waiting(visitor: Visitor, queue: Queue) -> None:
    published = queue.publish("orders")
    queue.publish("orders", wait="1 hour")
    claimed = queue.claim_one("orders")
    wait = "SELECT messages.wait_for_event(%s, %s, '{approved}', '{1}')"
    queue.value(wait, [[claimed.id], [claimed.claim_id]])

    page = visitor.open("/messages?state=waiting")

    row = page.locator("#found tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text(str(published))
    expect(row.locator("[data-label=State]")).to_have_text("waiting")
    expect(row.locator("[data-label=When]")).to_have_text("for an event")


def test_a_page_has_as_many_rows_as_were_chosen(visitor: Visitor, queue: Queue) -> None:
    queue.publish_many(30)
    page = visitor.open("/messages")

    page.get_by_label("Rows").select_option("25")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("#found tbody tr")).to_have_count(25)
    page.get_by_role("link", name="Next").click()
    expect(page.locator("#found tbody tr")).to_have_count(5)


@pytest.mark.long
def test_worker_headers_and_attempts_narrow_the_list(site: Site, queue: Queue) -> None:
    running = queue.publish("a", headers={"tenant": "acme", "n": 7})
    queue.claim("a", worker="w-1/0")
    waiting = queue.publish("a", headers={"tenant": "7"})

    def listed(query: str) -> list[int]:
        text = httpx.get(f"{site.url}/messages?{query}", headers={"accept": "text/html"}).text
        return [int(each) for each in re.findall(r'href="/messages/(\d+)"', text)]

    assert listed("worker=w-1") == [running]
    assert listed("worker=w-1/0") == [running]
    assert listed("worker=w") == []
    assert listed("header=tenant+%3D+acme") == [running]
    assert listed("header=n=7") == [running]
    assert listed('header=tenant="7"') == [waiting]
    assert listed("attempts=1") == [running]
    assert listed("attempts=0") == [running, waiting]


@pytest.mark.long
def test_the_list_is_live_and_says_how_many_there_are(visitor: Visitor, queue: Queue) -> None:
    queue.publish("mail")
    page = visitor.open("/messages?state=ready")
    is_live(page)

    published = queue.publish("orders")

    expect(page.locator(f"#m{published}")).to_be_visible()
    expect(page.get_by_role("navigation", name="States").get_by_role("link", name="Ready 2")).to_be_visible()
    expect(page.get_by_role("navigation", name="Topics").get_by_role("link", name="orders 1")).to_be_visible()


@pytest.mark.long
def test_the_list_waits_while_messages_are_selected(visitor: Visitor, queue: Queue) -> None:
    first = queue.publish()
    page = visitor.open("/messages?state=ready")
    is_live(page)
    box = page.get_by_label(f"Select message {first}")
    box.check()

    second = queue.publish()

    expect(page.get_by_role("navigation", name="States").get_by_role("link", name="Ready 2")).to_be_visible()
    expect(page.locator(ROWS)).to_have_count(1)
    expect(box).to_be_checked()
    expect(page.locator(".acts")).to_be_in_viewport()
    expect(page.get_by_text("The list waits")).to_be_visible()
    box.uncheck()
    expect(page.locator(f"#m{second}")).to_be_visible()


@pytest.mark.long
def test_topics_and_workers_with_their_counts_are_filters(visitor: Visitor, queue: Queue) -> None:
    running = queue.publish("mail")
    queue.claim("mail", worker="w-1/1")
    queue.publish_many(3, "orders")

    page = visitor.open("/messages")
    page.get_by_role("navigation", name="Workers").get_by_role("link", name="w-1 1").click()

    page.wait_for_url("**worker=w-1*")
    assert ids(page) == [running]
    # No count follows a filter by worker, so none is shown that is not true.
    expect(page.locator("#states .number")).to_have_count(0)
    page = visitor.open("/messages?topic=orders")
    page.get_by_role("navigation", name="Topics").get_by_role("link", name="orders 3").click()
    page.wait_for_url("**/messages?")
    expect(page.locator(ROWS)).to_have_count(4)


def test_counts_and_suggestions_name_only_topics_of_the_token(site: Site, queue: Queue, as_token: Any) -> None:
    queue.publish("mail.send")
    queue.publish("secret")
    queue.claim("secret", worker="hidden-worker")

    text = httpx.get(f"{site.url}/messages", headers=as_token("operator", topics=("mail*",))).text

    assert "mail.send" in text
    assert "secret" not in text
    assert "hidden-worker" not in text


@pytest.mark.long
def test_a_waiting_message_is_deleted_after_a_preview(visitor: Visitor, queue: Queue) -> None:
    queue.publish_many(2)
    (claimed,) = [each.id for each in queue.claim(limit=1)]

    page = visitor.open("/messages?state=live")
    page.get_by_role("link", name="Delete…").click()
    expect(page.locator("h1")).to_have_text("Delete 1 message?")
    expect(page.locator("main")).to_contain_text("nothing brings them back")
    page.get_by_role("button", name="Delete it").click()

    expect(page.locator("#progress")).to_contain_text("1 deleted")
    assert queue.ids() == [claimed]
    assert queue.rows("SELECT id FROM messages.message_archive") == []


@pytest.mark.long
def test_a_message_is_published_by_the_form(visitor: Visitor, queue: Queue) -> None:
    queue.publish("orders")
    page = visitor.open("/messages?topic=orders")
    page.get_by_role("link", name="Publish…").click()
    page.get_by_label("Payload").fill('{"n": 9007199254740993')
    page.get_by_label("Delay").fill("2h")
    page.get_by_role("button", name="Publish").click()
    expect(page.get_by_role("alert")).to_contain_text("payload")
    expect(page.get_by_label("Delay")).to_have_value("2h")
    visitor.expected.append("422")
    page.get_by_label("Payload").fill('{"n": 9007199254740993}')
    page.get_by_label("Headers").fill('{"tenant": "acme"}')
    page.get_by_role("button", name="Publish").click()

    page.wait_for_url(re.compile(r".*/messages/\d+$"))
    expect(page.locator("main")).to_contain_text("9007199254740993")
    (row,) = queue.rows(
        "SELECT payload::text, headers, available_at > now() AS is_later FROM messages.message WHERE id > 1"
    )
    assert (row.payload, row.headers, row.is_later) == ('{"n": 9007199254740993}', {"tenant": "acme"}, True)


def send_form(site: Site, **typed: str) -> httpx.Response:
    """Send the form that publishes."""
    form = {"topic": "a", "payload": "1", **typed}
    return httpx.post(f"{site.url}/messages/new", data=form, headers={"accept": "text/html"})


def test_what_cannot_be_published_is_said(site: Site, queue: Queue) -> None:
    queue.policy("full", max_depth=1)
    queue.publish("full")

    for typed, expected in (
        ({"topic": ""}, "topic"),
        ({"topic": "a b"}, "topic"),
        ({"payload": ""}, "there is no payload"),
        ({"payload": "nan"}, "payload"),
        ({"headers": "[1]"}, "headers"),
        ({"priority": "11"}, "priority"),
        ({"delay": "soon"}, "delay"),
        ({"key": "\0"}, "key"),
        ({"payload": '"\\u0000"'}, "payload"),
        ({"topic": "full"}, "full"),
        ({"payload": '"' + "x" * 1_000_001}, "use the HTTP API"),
    ):
        answer = send_form(site, **typed)

        assert answer.status_code == 422, typed
        assert expected in re.findall(r'role="alert">([^<]*)<', answer.text)[0]
    assert queue.ids() == [1]


def test_the_form_publishes_with_debounce_and_throttle(site: Site, queue: Queue) -> None:
    def send(payload: str, **typed: str) -> str:
        return send_form(site, payload=payload, **typed).headers["location"]

    waits = {"key": "k", "debounce": "1h", "max_delay": "2h"}
    debounced = {send("1", **waits), send("2", **waits)}
    throttled = {send("3", key="m", throttle="1h"), send("4", key="m", throttle="1h")}

    rows = queue.rows("SELECT id, payload FROM messages.message ORDER BY id")
    assert [row.payload for row in rows] == [2, 3]
    assert [debounced, throttled] == [{f"/messages/{row.id}"} for row in rows]


def test_the_form_publishes_with_settings_of_its_own(site: Site, queue: Queue) -> None:
    backoff = '{"kind": "constant", "base": "7s"}'
    sent = send_form(site, max_attempts="3", timeout="90s", backoff=backoff, retention="90d")
    send_form(site, backoff="linear")
    refused = send_form(site, backoff="cubic")

    rows = queue.rows("SELECT id, max_attempts, timeout, backoff, retention FROM messages.message ORDER BY id")
    assert (rows[0].max_attempts, rows[0].timeout, rows[0].retention) == (3, timedelta(seconds=90), timedelta(days=90))
    assert [row.backoff for row in rows] == [{"kind": "constant", "base": "7s"}, {"kind": "linear"}]
    assert refused.status_code == 422
    assert "backoff" in re.findall(r'role="alert">([^<]*)<', refused.text)[0]
    page = httpx.get(f"{site.url}{sent.headers['location']}", headers={"accept": "text/html"}).text
    assert [fact for fact in ("1m30s", "constant", "90d") if fact not in page] == []


def test_a_publisher_publishes_only_to_its_topics(site: Site, queue: Queue, as_token: Any) -> None:
    mail = as_token("viewer", "publisher", topics=("mail*",)) | {"accept": "text/html"}
    sent = [
        httpx.post(f"{site.url}/messages/new", data={"topic": topic, "payload": "1"}, headers=mail).status_code
        for topic in ("orders", "mail.send")
    ]

    assert sent == [422, 303]
    assert queue.value("SELECT array_agg(topic::text) FROM messages.message") == ["mail.send"]


def test_who_is_no_publisher_does_not_publish(site: Site, queue: Queue, as_token: Any) -> None:
    viewer = as_token("viewer") | {"accept": "text/html"}

    assert httpx.get(f"{site.url}/messages/new", headers=viewer).status_code == 403
    assert httpx.post(f"{site.url}/messages/new", data={"topic": "mail.send"}, headers=viewer).status_code == 403
    assert "Publish…" not in httpx.get(f"{site.url}/messages", headers=viewer).text
    assert queue.ids() == []


@pytest.mark.long
def test_states_are_links_that_keep_the_other_filters(visitor: Visitor, queue: Queue) -> None:
    died = die(queue, "mail", "Traceback\n  File x\nValueError: disk 7")
    queue.publish("mail")

    page = visitor.open("/messages?topic=mail")
    page.get_by_role("navigation", name="States").get_by_role("link", name="Dead").click()

    page.wait_for_url("**state=dead*")
    assert ids(page) == [died]
    expect(page.locator(ROWS)).to_contain_text("ValueError: disk 7")


@pytest.mark.long
def test_pages_lead_forward_and_back(visitor: Visitor, queue: Queue) -> None:
    published = queue.publish_many(120)

    page = visitor.open("/messages?topic=t")
    shown = [ids(page)]

    def turn(link: str) -> None:
        """Go to another page, and wait until it is loaded: until then the page before is shown."""
        first = str(ids(page)[0])
        page.get_by_role("link", name=link).click()
        expect(page.locator("tbody th a").first).not_to_have_text(first)
        page.wait_for_load_state()

    for _ in range(2):
        turn("Next")
        shown.append(ids(page))
    expect(page.get_by_role("link", name="Next")).to_have_count(0)
    turn("Previous")
    turn("Previous")

    assert list(itertools.chain(*shown)) == published
    expect(page.locator("tbody th a").first).to_have_text(str(published[0]))


@pytest.mark.long
def test_a_search_that_reaches_its_limit_says_so_and_can_be_continued(visitor: Visitor, queue: Queue) -> None:
    queue.publish_many(21_000)
    wanted = queue.publish(payload={"a": 1})

    page = visitor.open("/messages?payload=a+%3D+1")

    expect(page.locator(".empty")).to_contain_text("20,000 messages were searched")
    page.get_by_role("link", name="Continue searching").click()
    page.wait_for_url("**after=*")
    assert ids(page) == [wanted]


@pytest.mark.long
def test_an_id_leads_to_its_message(visitor: Visitor, queue: Queue) -> None:
    published = queue.publish()

    page = visitor.open("/messages")
    page.get_by_label("Id", exact=True).fill(str(published))
    page.keyboard.press("Enter")

    page.wait_for_url(f"**/messages/{published}")


def test_an_invalid_filter_is_reported_next_to_the_filters(site: Site, queue: Queue) -> None:
    for query, expected in {
        "since=yesterday": "since is 'yesterday'",
        "state=redy": "there is no state 'redy'",
        "payload=%24.a+%5B": "path of a search",
        "after=nonsense": "after is not a position",
        "header=tenant": "header is 'tenant'",
        "attempts=few": "attempts is 'few'",
    }.items():
        answer = httpx.get(f"{site.url}/messages?{query}", headers={"accept": "text/html"})

        assert answer.status_code == 422
        assert expected in answer.text.replace("&#39;", "'")


@pytest.mark.long
def test_no_value_in_an_address_or_a_form_causes_an_error(site: Site, queue: Queue) -> None:
    queue.publish()
    paths = (
        *(
            "topic=%00",
            "key=%ED%A0%80",
            "payload=a%3D%00",
            "payload=a%3D1e999",
            "payload=%5B%5B",
            "since=1e400",
            "id=%00",
            "header=a%3D%00",
            "header=%00%3D1",
            "worker=%00",
            "attempts=999999999",
        ),
        *(
            f"after={quote(place)}"
            for place in ("[1]", "{}", '["ended",["x"]]', '["waiting",["a",[1,2]]]', '["running",{}]')
        ),
    )
    agreed = {"as_of": "2026-01-01", "max_id": "7", "most": "5"}
    forms = (
        {"act": "cancel", "so_far": '{"done": 1e400}'},
        *({"act": "cancel", "so_far": "[1]"}, {"act": "cancel", "after": "{"}, {"act": "redrive", "rate": "nan"}),
        *({"act": "cancel", "ids": "1,x"}, {"act": "cancel", "topic": "z", "reason": "\0"}),
        *({"act": "cancel", "as_of": "x"}, {"act": "cancel", "max_id": "9" * 50}, {"act": "cancel", "most": "-1"}),
        *({"act": "cancel", "as_of": "9999-12-31"}, {"act": "cancel", "as_of": "", "max_id": "\u0663"}),
    )

    with httpx.Client(base_url=site.url, headers={"accept": "text/html"}) as client:
        read = {path: client.get(f"/messages?{path}").status_code for path in paths}
        sent = [client.post("/messages/bulk", data=agreed | form).status_code for form in forms]

    assert {path: status for path, status in read.items() if status not in (200, 422)} == {}
    assert set(sent) <= {200, 422}


@pytest.mark.long
def test_selected_messages_are_cancelled_after_a_preview(visitor: Visitor, queue: Queue) -> None:
    first, second, third = queue.publish_many(3)
    queue.claim(limit=1)

    page = visitor.open("/messages")
    page.get_by_label(f"Select message {first}").check()
    page.get_by_label(f"Select message {second}").check()
    page.locator("#list").get_by_role("button", name="Cancel").click()
    expect(page.locator("h1")).to_have_text("Cancel 2 messages?")
    expect(page.locator("table.counted")).to_contain_text("running")
    page.get_by_label("Reason").fill("by mistake")
    page.get_by_role("button", name="Cancel them").click()

    expect(page.locator("#progress")).to_contain_text("2 cancelled")
    assert queue.ids() == [third]
    assert queue.archived(second).error == "cancelled: by mistake"
    audit = queue.row("SELECT action, actor, detail FROM messages.audit")
    assert (audit.action, audit.actor, audit.detail["count"]) == ("cancel", "local", 2)


def test_all_matching_messages_are_cancelled_in_batches_and_later_ones_are_not(visitor: Visitor, queue: Queue) -> None:
    queue.publish_many(1200, "mail", wait="1 hour")
    other = queue.publish("orders", wait="1 hour")

    page = visitor.open("/messages?topic=mail&state=delayed")
    page.get_by_role("link", name="Retry now").click()
    expect(page.locator("h1")).to_have_text("Retry now 1,200 messages?")
    later = queue.publish("mail", created_at="2099-01-01 00:00+00", wait="1 hour")
    page.get_by_role("button", name="Retry now them").click()

    expect(page.locator("#progress")).to_contain_text("Done")
    expect(page.locator("#progress")).to_contain_text("1,200 due now")
    waiting = queue.rows("SELECT id FROM messages.message WHERE available_at > now() ORDER BY id")
    assert [row.id for row in waiting] == [other, later]
    counts = queue.rows("SELECT (detail ->> 'count')::int AS count FROM messages.audit ORDER BY id")
    assert [row.count for row in counts] == [500, 500, 200]


def agreed(text: str) -> dict[str, str]:
    """Return the fields that the form of a preview sends when it is confirmed."""
    fields = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', text)
    return {name: html.unescape(value) for name, value in fields}


def confirm(client: httpx.Client, text: str) -> str:
    """Confirm an action, and continue until it is done; return the final text."""
    while fields := agreed(text):
        if "csrf" not in fields:
            fields["csrf"] = ""
        text = client.post("/messages/bulk", data=fields).raise_for_status().text
        if "Done</h2>" in text:
            return text
    raise AssertionError(text)


def test_a_preview_of_few_among_many_counts_to_the_end(site: Site, queue: Queue) -> None:
    queue.conn.execute(
        "INSERT INTO messages.message (topic, payload) SELECT 't', jsonb_build_object('id', n) "
        "FROM generate_series(1, 45000) AS n"
    )

    with httpx.Client(base_url=site.url) as client:
        output = client.get(
            "/messages/preview", params={"act": "cancel", "topic": "t", "payload": "$ ? (@.id % 500 == 0)"}
        ).text

    assert "<h1>Cancel 90 messages?</h1>" in output


def test_a_count_that_ended_before_the_search_is_a_lower_bound(
    site: Site, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_actions, "MAX_SEARCHES", 1)
    queue.conn.execute(
        "INSERT INTO messages.message (topic, payload) SELECT 't', jsonb_build_object('id', n) "
        "FROM generate_series(1, 25000) AS n"
    )

    with httpx.Client(base_url=site.url) as client:
        output = client.get(
            "/messages/preview", params={"act": "cancel", "topic": "t", "payload": "$ ? (@.id % 500 == 0)"}
        ).text
        later = queue.publish(payload={"id": 500}, created_at="2000-01-01 00:00+00")
        done = confirm(client, output)

    (counted,) = re.findall(r"<h1>Cancel at least (\d+) messages\?</h1>", output)
    assert f"Cancel {counted}</button>" in output
    assert f"<strong>{counted}</strong> cancelled" in done
    assert 0 < int(counted) < 50
    assert queue.message(later) is not None


@pytest.fixture
def slow_search(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A database that is so slow that searches give up after half a second: each message that they look at takes 10 ms.

    A preview has one search instead of four. Returns how many messages wait.
    """
    monkeypatch.setattr(bulk_actions, "MAX_SEARCHES", 1)
    queue.publish_many(200, "legacy.import")
    name = "messages.matches_search"
    definition = queue.value(f"SELECT pg_get_functiondef('{name}'::regproc)")
    queue.conn.execute(f"ALTER FUNCTION {name} RENAME TO matches_search_fast".encode())
    slow = definition.replace("SELECT ", "SELECT (SELECT true FROM pg_sleep(0.01)) AND ", 1)
    queue.conn.execute(slow.encode())
    yield 200
    queue.conn.execute(definition.encode())
    queue.conn.execute(b"DROP FUNCTION messages.matches_search_fast")


@pytest.mark.long
def test_a_slow_database_makes_the_preview_a_lower_bound_which_the_action_keeps(
    visitor: Visitor, queue: Queue, slow_search: int
) -> None:
    page = visitor.open("/messages/preview?act=cancel&topic=legacy.import&state=ready")

    expect(page.locator("h1")).to_have_text(re.compile(r"Cancel at least \d+ messages\?"))
    counted = int(re.findall(r"\d+", page.locator("h1").inner_text())[0])
    assert 0 < counted < slow_search
    page.get_by_role("button", name=f"Cancel {counted}", exact=True).click()
    expect(page.locator("#progress")).to_contain_text("Done")
    expect(page.locator("#progress")).to_contain_text(f"{counted} cancelled")
    assert len(queue.ids()) == slow_search - counted


@pytest.mark.long
def test_all_matching_messages_have_a_button_of_their_own(visitor: Visitor, queue: Queue, slow_search: int) -> None:
    page = visitor.open("/messages/preview?act=cancel&topic=legacy.import&state=ready")

    page.get_by_role("button", name="Cancel all ≈ 200").click()

    expect(page.locator("#progress")).to_contain_text("200 cancelled", timeout=120_000)
    assert queue.ids() == []


def test_an_action_affects_no_more_than_the_confirmed_and_no_later_messages(site: Site, queue: Queue) -> None:
    waiting = queue.publish_many(3, wait="1 hour")
    ready = queue.publish_many(3)

    with httpx.Client(base_url=site.url) as client:
        output = client.get("/messages/preview", params={"act": "cancel", "topic": "t", "state": "ready"}).text
        # One that was published later and claims an earlier time; and some that were not selected and match by now.
        later = queue.publish(created_at="2000-01-01 00:00+00", priority=9)
        queue.call("retry_now", waiting)
        done = confirm(client, output)

    assert "<h1>Cancel 3 messages?</h1>" in output
    assert "<strong>3</strong> cancelled" in done
    assert len(queue.ids()) == 4
    assert later in queue.ids()
    assert len(ready) == 3


def test_an_action_on_all_matches_requires_a_preview(site: Site, queue: Queue) -> None:
    published = queue.publish()

    answers = [
        httpx.post(f"{site.url}/messages/bulk", data={"act": "cancel", "topic": "t", **more}).status_code
        for more in ({}, {"as_of": "2099-01-01"}, {"as_of": "2099-01-01", "max_id": "99"}, {"all": "1"})
    ]

    assert (answers, queue.ids()) == ([422] * 4, [published])


def test_dead_messages_are_redriven_from_the_list(visitor: Visitor, queue: Queue) -> None:
    died = die(queue)

    page = visitor.open("/messages?state=dead")
    page.get_by_label("Select all of this page").check()
    page.locator("#list").get_by_role("button", name="Redrive").click()
    page.get_by_role("button", name="Redrive it").click()

    expect(page.locator("#progress")).to_contain_text("1 redriven")
    assert queue.row("SELECT redriven_from FROM messages.message").redriven_from == died


def test_a_batch_that_fails_is_reported_and_can_be_repeated(visitor: Visitor, queue: Queue) -> None:
    queue.publish_many(3)
    queue.conn.execute("ALTER TABLE messages.audit ADD CONSTRAINT none_for_now CHECK (false) NOT VALID")

    page = visitor.open("/messages/preview?act=cancel&topic=t")
    page.get_by_role("button", name="Cancel them").click()

    expect(page.locator("#progress [role=alert]")).to_contain_text("The last batch was not done")
    queue.conn.execute("ALTER TABLE messages.audit DROP CONSTRAINT none_for_now")
    assert len(queue.ids()) == 3
    page.get_by_role("button", name="Try again").click()
    expect(page.locator("#progress")).to_contain_text("3 cancelled")
    assert queue.ids() == []


@pytest.mark.long
def test_the_page_works_without_a_script(visitor: Visitor, queue: Queue) -> None:
    queue.publish_many(700)

    page = visitor.open("/messages/preview?act=cancel&topic=t", java_script_enabled=False)
    page.get_by_role("button", name="Cancel them").click()
    expect(page.locator("#progress")).to_contain_text("500 cancelled")
    page.get_by_role("button", name="Continue").click()

    expect(page.locator("#progress")).to_contain_text("700 cancelled")
    assert queue.ids() == []


def test_a_viewer_sees_no_action_and_cannot_act(visitor: Visitor, site: Site, queue: Queue, as_token: Any) -> None:
    published = queue.publish()
    headers = as_token("viewer")

    page = visitor.open("/messages", extra_http_headers=headers)

    assert ids(page) == [published]
    expect(page.locator("input[type=checkbox]")).to_have_count(0)
    expect(page.locator(".acts")).to_have_count(0)
    for answer in (
        httpx.post(f"{site.url}/messages/bulk", headers=headers, data={"act": "cancel", "ids": str(published)}),
        httpx.get(f"{site.url}/messages/preview?act=cancel", headers=headers),
    ):
        assert answer.status_code == 403
    assert queue.ids() == [published]


def test_topics_of_a_token_limit_lists_and_actions(site: Site, queue: Queue, as_token: Any) -> None:
    mine, other = queue.publish("mail.send"), queue.publish("orders")
    headers = as_token("operator", topics=("mail*",)) | {"accept": "text/html"}

    listed = httpx.get(f"{site.url}/messages", headers=headers).text
    assert (f"/messages/{mine}" in listed, f"/messages/{other}" in listed) == (True, False)
    assert httpx.get(f"{site.url}/messages/{other}", headers=headers).status_code == 404
    httpx.post(f"{site.url}/messages/bulk", headers=headers, data={"act": "cancel", "ids": f"{mine},{other}"})
    assert queue.ids() == [other]
    httpx.post(f"{site.url}/messages/bulk", headers=headers, data={"act": "cancel"})
    assert queue.ids() == [other]


KEY_CHECK = "message_key_is_short_and_printable"


def test_hostile_names_and_values_are_shown_literally_and_do_nothing(visitor: Visitor, queue: Queue) -> None:
    key = "k\"'><script>document.title='taken'</script>{{7*7}}\u202e"
    # A key from before such characters were refused.
    check = queue.value("SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = %s", [KEY_CHECK])
    queue.conn.execute(f"ALTER DOMAIN messages.key_name DROP CONSTRAINT {KEY_CHECK}")
    queue.publish(key=key, channel="<b>&amp;", payload={"x": "</script><script>document.title='taken'</script>"})
    queue.conn.execute(
        f"ALTER DOMAIN messages.key_name ADD CONSTRAINT {KEY_CHECK} {check.removesuffix(' NOT VALID')} NOT VALID"
    )

    page = visitor.open("/messages")
    shown = page.locator(ROWS).inner_text()
    found = visitor.open(f"/messages?key={quote(key)}")

    assert "</script>{{7*7}}\\u202e" in shown
    assert "<b>&amp;" in shown
    assert page.title() == "Messages · pgrouse"
    expect(found.locator(ROWS)).to_have_count(1)


def test_rows_are_reached_by_keys(visitor: Visitor, queue: Queue) -> None:
    _, second = queue.publish_many(2)

    page = visitor.open("/messages")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Enter")

    page.wait_for_url(f"**/messages/{second}")


@pytest.mark.long
def test_the_page_is_accessible(visitor: Visitor, queue: Queue) -> None:
    queue.publish_many(3, channel="c", key=None)
    die(queue, error="a long error " * 30)

    found = (
        complaints(visitor, "/messages")
        + complaints(visitor, "/messages/preview?act=cancel")
        + complaints(visitor, "/messages/new")
    )

    assert found == []
