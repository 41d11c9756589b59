"""The page of one message: its content, its history, and its actions."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect
from psycopg.types.json import Jsonb

from tests.sql.deaths import die
from tests.sql.queue import Queue
from tests.web.accessible import complaints
from tests.web.site import Site, Visitor

TRACEBACK = (
    'Traceback (most recent call last):\n  File "/app/h.py", line 3, in f\n    g()\nValueError: disk <7> is full'
)


@pytest.mark.long
def test_the_page_shows_the_history_of_a_message(visitor: Visitor, queue: Queue) -> None:
    queue.policy(max_attempts=2)
    published = queue.publish()
    queue.settle("retry", queue.claim(worker="w-1"), ["first <i>error</i>"], ["0"])
    queue.settle("retry", queue.claim(worker="w-2"), [TRACEBACK])

    page = visitor.open(f"/messages/{published}")

    events = page.locator(".timeline > li strong").all_inner_texts()
    assert events == ["published", "attempt 1 failed", "attempt 2 began", "failed"]
    expect(page.locator(".timeline")).to_contain_text("first <i>error</i>")
    expect(page.locator(".timeline pre")).to_contain_text("ValueError: disk <7> is full")
    expect(page.locator(".reasons")).to_contain_text("dead: it failed")


@pytest.mark.long
def test_a_running_message_shows_its_lock_and_its_progress_live(visitor: Visitor, queue: Queue) -> None:
    published = queue.publish()
    (claimed,) = queue.claim(worker="w-1")
    queue.value(
        "SELECT messages.set_progress(%s, %s, %s)",
        [[claimed.id], [claimed.claim_id], [Jsonb({"done": 30, "total": 100})]],
    )

    page = visitor.open(f"/messages/{published}")

    expect(page.locator("#now")).to_contain_text("30 of 100")
    expect(page.locator(".timeline")).to_contain_text("the lock runs out")
    queue.settle("complete", [claimed])
    expect(page.locator("#head")).to_contain_text("success")


@pytest.mark.long
def test_json_is_formatted_exactly_with_numbers_of_any_size(visitor: Visitor, queue: Queue) -> None:
    published = queue.publish(payload=None, body=b"x")
    text = '{"big": 9007199254740993123, "exact": 1.10, "text": "\u202e</pre><script>document.title=1</script>"}'
    queue.conn.execute("UPDATE messages.message SET body = NULL, payload = %s::jsonb", [text])

    page = visitor.open(f"/messages/{published}")

    shown = page.locator("pre.json").inner_text()
    assert '"big": 9007199254740993123,' in shown
    assert '"exact": 1.10\n' in shown
    assert '"\\u202e</pre><script>document.title=1</script>"' in shown
    assert page.title() == f"Message {published} · pgrouse"


@pytest.mark.long
@pytest.mark.parametrize(
    ("payload", "in_page"),
    [
        ("(repeat('[', 3000) || repeat(']', 3000))::jsonb", "[" * 100),
        ("to_jsonb(repeat('0123456789', 1000000))", "01234567890123456789"),
    ],
    ids=["deep", "10 MB"],
)
def test_a_deep_or_large_value_is_shown_in_part_and_downloaded_whole(
    site: Site, queue: Queue, payload: str, in_page: str
) -> None:
    queue.conn.execute(f"INSERT INTO messages.message (topic, payload) VALUES ('t', {payload})".encode())
    (published,) = queue.ids()

    page = httpx.get(f"{site.url}/messages/{published}", headers={"accept": "text/html"})
    file = httpx.get(f"{site.url}/messages/{published}/payload")

    assert in_page in page.text.replace("\n", "").replace(" ", "")
    assert len(page.text) < 200_000
    assert file.text == queue.value("SELECT payload::text FROM messages.message")
    assert file.headers["content-disposition"] == f'attachment; filename="message-{published}.json"'
    assert file.headers["content-type"] == "application/octet-stream"


@pytest.mark.long
def test_bytes_are_shown_as_hex_and_downloaded(visitor: Visitor, site: Site, queue: Queue) -> None:
    published = queue.publish(body=bytes(range(256)) * 4)

    page = visitor.open(f"/messages/{published}")

    expect(page.locator("pre.json")).to_contain_text(
        "00000040  40 41 42 43 44 45 46 47  48 49 4a 4b 4c 4d 4e 4f  @ABCDEFGHIJKLMNO"
    )
    expect(page.locator("main")).to_contain_text("1,024 bytes, the first 512")
    assert httpx.get(f"{site.url}/messages/{published}/payload").content == bytes(range(256)) * 4


@pytest.mark.long
def test_a_payload_is_copied_as_it_is_shown(visitor: Visitor, queue: Queue) -> None:
    published = queue.publish(payload={"n": 9007199254740993})

    page = visitor.open(f"/messages/{published}", permissions=["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy payload").click()

    expect(page.get_by_text("Copied")).to_be_visible()
    assert '"n": 9007199254740993' in page.evaluate("navigator.clipboard.readText()")


def test_a_page_that_may_not_copy_selects_the_text(visitor: Visitor, queue: Queue) -> None:
    published = queue.publish(payload={"n": 1})

    page = visitor.open(f"/messages/{published}")
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('forbidden')); }")
    page.get_by_role("button", name="Copy payload").click()

    expect(page.locator(".toast.bad")).to_contain_text("may not copy")
    assert '"n": 1' in page.evaluate("getSelection().toString()")


def test_a_message_that_waits_for_an_event_is_signalled_by_a_button(visitor: Visitor, queue: Queue) -> None:
    published = queue.publish()
    queue.settle("wait_for_event", queue.claim(), ["approved"], [1], ["7 days"])
    page = visitor.open(f"/messages/{published}")
    expect(page.locator(".reasons")).to_contain_text("Its handler waits for the event")
    expect(page.get_by_label("Event")).to_have_value("approved")

    page.get_by_label("Payload (JSON)").fill('{"by": "anna"}')
    page.get_by_role("button", name="Signal it").click()

    expect(page.get_by_role("status").filter(has_text="It has got the event.")).to_be_visible()
    (claimed,) = queue.claim()
    (event,) = queue.rows("SELECT * FROM messages.load_events(%s, %s)", [claimed.id, claimed.claim_id])
    assert (event.name, event.payload) == ("approved", '{"by": "anna"}')


@pytest.mark.long
def test_the_page_of_a_signed_url_signals_by_its_button(visitor: Visitor, queue: Queue) -> None:
    published = queue.publish()
    queue.settle("wait_for_event", queue.claim(), ["approved"], [1], ["7 days"])
    until = queue.value("SELECT date_trunc('second', messages.now() + interval '1 day')")
    signature = queue.call("sign_signal", published, "approved", until)
    path = f"/signal/{published}/approved?until={int(until.timestamp())}&number=1&signature={signature}"
    page = visitor.open(path)
    assert queue.claim() == []

    page.get_by_role("button", name="Confirm").click()

    expect(page.get_by_role("status").filter(has_text="Done.")).to_be_visible()
    assert [row.id for row in queue.claim()] == [published]
    assert complaints(visitor, path) == []


def test_a_waiting_message_is_retried_and_then_cancelled_or_skipped_after_a_second_click(
    visitor: Visitor, queue: Queue
) -> None:
    page = visitor.open(f"/messages/{queue.publish(wait='1 hour')}")
    page.get_by_role("button", name="Retry now").click()
    expect(page.locator(".result")).to_have_text("It is due now.")

    for word, result in (("Cancel", "cancelled"), ("Skip", "failed")):
        published = queue.publish()
        page.goto(f"/messages/{published}")
        page.locator("summary", has_text=word).click()
        page.locator("details[open]").get_by_label("Reason").fill("not needed")
        page.get_by_role("button", name=f"{word} it").click()

        expect(page.locator("#head")).to_contain_text(result)
        assert queue.archived(published).result == result
        assert "not needed" in queue.archived(published).error
    assert len(queue.claim()) == 1, "the first one is due"


@pytest.mark.long
def test_a_payload_is_edited_in_place_with_every_digit(visitor: Visitor, queue: Queue) -> None:
    published = queue.publish(payload={"a": 1}, headers={"trace": "x"})

    page = visitor.open(f"/messages/{published}")
    page.get_by_role("link", name="Edit").click()
    page.get_by_label("Payload (JSON)").fill('{"a": 12345678901234567890.10}')
    page.get_by_role("button", name="Save").click()

    expect(page.locator(".result")).to_have_text("It is edited.")
    assert queue.value("SELECT payload::text FROM messages.message") == '{"a": 12345678901234567890.10}'
    assert queue.message(published).headers == {"trace": "x"}


def test_an_invalid_payload_is_refused_and_remains_in_the_form(site: Site, queue: Queue) -> None:
    published = queue.publish(payload={"a": 1})

    for typed, expected in {
        '{"a": 1,}': "payload is not JSON",
        '{"a": 1, "a": 2}': "occurs twice",
        '"\\u0000"': "NUL",
        '"\\ud800"': "half of a surrogate pair",
        '"\\x"': "payload is not JSON",
        "[" * 300 + "]" * 300: "nested deeper",
    }.items():
        answer = httpx.post(f"{site.url}/messages/{published}/edit", data={"payload": typed})

        assert answer.status_code == 422
        assert expected in answer.text
        assert typed[:100].replace('"', "&#34;") in answer.text
    assert queue.message(published).payload == {"a": 1}


def test_an_edit_is_fenced_by_the_claim_and_by_other_edits(site: Site, queue: Queue) -> None:
    published = queue.publish()
    seen = queue.value("SELECT md5(payload::text) FROM messages.message")

    def edit() -> str:
        answer = httpx.post(f"{site.url}/messages/{published}/edit", data={"payload": "2", "seen": seen})
        return answer.headers["location"].partition("result=")[2]

    assert edit() == "edited"
    assert edit() == "changed"
    queue.claim()
    assert edit() == "running"


@pytest.mark.long
def test_a_dead_message_is_edited_and_redriven_and_its_line_is_shown(visitor: Visitor, queue: Queue) -> None:
    died = die(queue, payload={"width": 0})

    page = visitor.open(f"/messages/{died}")
    page.get_by_role("link", name="Edit and redrive").click()
    expect(page.get_by_label("Payload (JSON)")).to_have_value('{\n  "width": 0\n}')
    page.get_by_label("Payload (JSON)").fill('{"width": 5}')
    page.get_by_role("button", name="Redrive with this").click()

    expect(page.locator(".result")).to_have_text("It is redriven as the message below.")
    (new,) = queue.ids()
    assert (queue.message(new).payload, queue.message(new).redriven_from) == ({"width": 5}, died)
    page.locator(".lineage a").click()
    page.wait_for_url(f"**/messages/{new}")
    expect(page.locator(".timeline")).to_contain_text(f"as a redrive of message {died}")


def test_a_second_redrive_of_a_message_is_reported(site: Site, queue: Queue) -> None:
    died = die(queue)
    queue.rows("SELECT * FROM messages.redrive(%s)", [[died]])

    answer = httpx.post(f"{site.url}/messages/{died}/redrive")

    assert answer.headers["location"] == f"/messages/{died}?result=redriven_before"


def test_a_missing_message_is_not_found(site: Site, queue: Queue) -> None:
    for path in ("/messages/4711", "/messages/nothing", "/messages/99999999999999999999", "/messages/4711/payload"):
        assert httpx.get(site.url + path, headers={"accept": "text/html"}).status_code == 404, path


@pytest.mark.long
def test_a_viewer_sees_no_button_and_cannot_act(visitor: Visitor, site: Site, queue: Queue, as_token: Any) -> None:
    waiting, died = queue.publish(wait="1 hour"), die(queue)
    headers = as_token("viewer")

    for path in (f"/messages/{waiting}", f"/messages/{died}", "/dead"):
        page = visitor.open(path, extra_http_headers=headers)
        expect(page.locator("h1")).to_be_visible()
        expect(
            page.locator("main button:not([role=search] button, .copy), main summary.button, main a.button")
        ).to_have_count(0)
    for path in (
        *(f"/messages/{waiting}/{word}" for word in ("retry", "signal", "cancel", "skip", "edit")),
        *(f"/messages/{died}/redrive", "/dead/redrive", "/dead/silence", "/dead/unsilence"),
    ):
        assert httpx.post(site.url + path, headers=headers).status_code == 403, path
    assert queue.rows("SELECT FROM messages.audit WHERE action <> 'add_token'") == []


def test_another_site_cannot_act(site: Site, queue: Queue) -> None:
    published = queue.publish()

    answer = httpx.post(f"{site.url}/messages/{published}/cancel", headers={"Origin": "https://evil.example"})

    assert answer.status_code == 403
    assert queue.ids() == [published]


@pytest.mark.long
def test_progress_data_of_a_handler_may_have_any_content(site: Site, queue: Queue) -> None:
    published = queue.publish()
    (claimed,) = queue.claim()
    values: list[Any] = [
        {"done": 10**30, "total": 0},
        {"done": 10**500, "total": 1},
        "</script>",
        [1],
        {"done": True},
        {"done": 5, "unit": "x" * 500},
    ]
    for each in values:
        values = [[claimed.id], [claimed.claim_id], [Jsonb(each)]]
        queue.value("SELECT messages.set_progress(%s, %s, %s)", values)

        for page in (f"/messages/{published}", "/workers"):
            answer = httpx.get(f"{site.url}{page}")

            assert answer.status_code == 200, json.dumps(each)
            assert "</script>" not in answer.text.partition("<body>")[2]


@pytest.mark.long
def test_the_page_is_accessible(visitor: Visitor, queue: Queue) -> None:
    died, waiting = die(queue, error=TRACEBACK), queue.publish(payload={"a": ["x" * 300]})
    paths = (f"/messages/{died}", f"/messages/{waiting}", f"/messages/{waiting}/edit")

    assert [each for path in paths for each in complaints(visitor, path)] == []


@pytest.mark.long
def test_dependencies_and_dependents_are_links_with_states(visitor: Visitor, queue: Queue) -> None:
    first = queue.publish("first")
    middle = queue.send(after=[first]).id
    last = queue.send(topic="last", after=[middle], after_failed="run").id
    (claimed,) = queue.claim("first")
    queue.value("SELECT messages.save_step(%s, %s, 'charge', '{\"paid\": true}')", [claimed.id, claimed.claim_id])

    page = visitor.open(f"/messages/{middle}")
    before, after = page.locator(".neighbours").all()

    expect(before).to_have_text(f"{first} first running")
    expect(after).to_have_text(f"{last} last blocked if it does not succeed: run")
    expect(page.locator("main")).to_contain_text(f"It waits for message {first}, which has not ended")
    assert "9000" not in page.locator("main").inner_text()
    expect(page.get_by_role("button", name="Retry now")).to_have_count(0)
    before.get_by_role("link").click()
    expect(page.get_by_role("heading", name="Steps")).to_be_visible()
    expect(page.locator("main")).to_contain_text('{"paid": true}')


@pytest.mark.long
def test_the_log_lines_of_attempts_are_shown(visitor: Visitor, queue: Queue) -> None:
    published = queue.publish()
    (claimed,) = queue.claim(worker="w-1")
    lines = "x" * 20_000 + "\nINFO shop: <b>charged</b>"
    queue.call("save_logs", [claimed.id], [claimed.claim_id], [lines], [1234])

    page = visitor.open(f"/messages/{published}")

    logs = page.locator("section", has=page.get_by_role("heading", name="Logs"))
    expect(logs.locator("pre")).to_contain_text("INFO shop: <b>charged</b>")
    expect(logs).to_contain_text("1,234 lines before it were not kept")
    assert len(logs.locator("pre").inner_text()) <= 20_000
