"""The page of dead messages: groups, redrives of whole groups, silences."""

from __future__ import annotations

import re

import httpx
import pytest
from playwright.sync_api import expect

from tests.sql.deaths import die, die_ago
from tests.sql.queue import Queue
from tests.web.accessible import complaints
from tests.web.site import Site, Visitor, is_live


def die_many(queue: Queue, count: int, topic: str = "mail", error: str = "ValueError: disk 7 is full") -> list[int]:
    """Let this number of messages fail at once."""
    published = queue.publish_many(count, topic)
    claimed = queue.claim(topic, limit=count)
    queue.conn.execute("SET client_min_messages = error")
    queue.settle("fail", claimed, [error] * count)
    return published


@pytest.mark.long
def test_an_empty_page_explains_its_content(visitor: Visitor) -> None:
    expect(visitor.open("/dead").locator(".empty")).to_contain_text("No message died in this period")


@pytest.mark.long
def test_groups_show_count_age_and_error(visitor: Visitor, queue: Queue) -> None:
    die_ago(queue, "3 days", "mail", "ValueError: disk 9 is full")
    die_many(queue, 4)
    die(queue, "orders", "no <b>customer</b>", settle="reject")
    queue.rows("SELECT * FROM messages.redrive_where('mail', p_limit => 1)")

    page = visitor.open("/dead")

    mail, orders = page.locator("tbody tr").all()
    expect(mail).to_contain_text(re.compile(r"4\s*1 redriven"))
    expect(mail).to_contain_text("ValueError: disk 7 is full")
    expect(mail.get_by_role("img")).to_have_attribute(
        "aria-label", "Deaths over the last 7d: at most 4 in one of 24 parts, 4 in the latest"
    )
    expect(mail.locator("svg rect:not(.none)")).to_have_count(2)
    expect(orders).to_contain_text("no <b>customer</b>")
    expect(visitor.open("/dead?of=1d").locator("tbody td.num").first).to_have_text("4")


@pytest.mark.long
def test_a_group_links_to_its_messages(visitor: Visitor, queue: Queue) -> None:
    die(queue, "mail", "other error")
    wanted = die(queue, "mail", "disk 7")

    page = visitor.open("/dead")
    page.locator("tbody tr", has_text="disk 7").get_by_role("link", name="mail").first.click()

    page.wait_for_url("**/messages?*")
    assert page.locator("tbody th a").all_inner_texts() == [str(wanted)]


def test_a_group_is_redriven_after_a_preview_in_batches_and_at_a_rate(visitor: Visitor, queue: Queue) -> None:
    ids = die_many(queue, 700)
    other = die(queue, "mail", "other error")

    page = visitor.open("/dead")
    page.locator("tbody tr", has_text="disk 7").get_by_role("link", name="Redrive the group").click()
    expect(page.locator("h1")).to_have_text("Redrive 700 messages of mail?")
    expect(page.locator("table.counted")).to_contain_text("are redriven700")
    page.get_by_label("Maximum per second").fill("10")
    page.get_by_role("button", name="Redrive them").click()

    expect(page.locator("#progress")).to_contain_text("Done")
    expect(page.locator("#progress")).to_contain_text("700 redriven")
    back = queue.rows("SELECT redriven_from AS id, available_at FROM messages.message ORDER BY id")
    assert [row.id for row in back] == ids
    assert other not in ids
    assert 60 < (back[-1].available_at - back[0].available_at).total_seconds() < 90


def test_a_redrive_of_a_group_is_limited_to_the_confirmed_number(site: Site, queue: Queue) -> None:
    ids = die_many(queue, 3)
    group = queue.row("SELECT topic, result, error_fingerprint AS fingerprint FROM messages.dead LIMIT 1")._asdict()

    output = httpx.get(f"{site.url}/dead/redrive", params=group).text
    later = die_many(queue, 3)
    # One of them claims to have died long ago.
    queue.conn.execute("UPDATE messages.message_archive SET archived_at = '2026-01-01' WHERE id = %s", [later[0]])
    fields = dict(re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', output))
    done = httpx.post(f"{site.url}/dead/redrive", data=fields).text
    without = httpx.post(f"{site.url}/dead/redrive", data=group)

    assert f"<h1>Redrive 3 messages of {group['topic']}?</h1>" in output
    assert "<strong>3</strong>" in done
    assert len(queue.rows("SELECT FROM messages.message")) == len(ids)
    assert without.status_code == 422


def test_a_silence_of_many_kinds_or_topics_is_shown_at_the_groups_that_it_silences(site: Site, queue: Queue) -> None:
    die(queue, "mail", "disk 7")
    die(queue, "orders", "disk 7")

    queue.call("silence", kind="dead_*", topic="m*l", **{"for": "1 hour"})

    assert httpx.get(f"{site.url}/dead").text.count("silenced until") == 1


@pytest.mark.long
def test_a_group_is_silenced_and_reported_again_afterwards(visitor: Visitor, queue: Queue) -> None:
    died = die(queue, "mail", "disk 7")

    page = visitor.open("/dead")
    page.get_by_role("link", name="Silence the group mail").click()
    page.get_by_label("For", exact=True).fill("2h")
    page.get_by_label("Reason").fill("we know")
    page.get_by_role("button", name="Silence").click()

    expect(page.locator("tbody .badge.warn")).to_contain_text("silenced until")
    silence = queue.row("SELECT kind, topic, error_fingerprint, reason, created_by FROM messages.silence")
    fingerprint = queue.archived(died).error_fingerprint
    assert silence == ("dead_message", "mail", fingerprint, "we know", "local")

    page.get_by_role("button", name="End the silence").click()
    expect(page.locator("tbody .badge.warn")).to_have_count(0)
    assert queue.value("SELECT ended_at IS NOT NULL FROM messages.silence")


@pytest.mark.long
def test_a_new_dead_message_appears_on_an_open_page(visitor: Visitor, queue: Queue) -> None:
    page = visitor.open("/dead")

    die(queue, "mail", "disk 7")

    expect(page.locator("tbody tr")).to_contain_text("disk 7")


@pytest.mark.long
def test_groups_are_filtered_and_sorted_and_stay_so_when_one_dies(visitor: Visitor, queue: Queue) -> None:
    die_ago(queue, "2 days", "mail", "ValueError: disk 7 is full")
    die_many(queue, 3, "mail", "TimeoutError: no answer of smtp")
    die_many(queue, 2, "orders", "TimeoutError: no answer of the shop")
    page = visitor.open("/dead")
    errors = page.locator("tbody .error-line")
    expect(errors).to_have_text([re.compile("smtp"), re.compile("shop"), re.compile("disk")])

    page.get_by_label("Error contains").fill("TIMEOUT")
    page.get_by_label("Sort by").select_option(label="latest")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(errors).to_have_text([re.compile("shop"), re.compile("smtp")])
    is_live(page)
    die_many(queue, 1, "invoices", "TimeoutError: no answer of the bank")
    die_many(queue, 9, "invoices", "ValueError: no iban")
    expect(errors).to_have_text([re.compile("bank"), re.compile("shop"), re.compile("smtp")])

    page.goto("/dead?topic=mail&sort=nothing&of=x")
    expect(errors).to_have_text([re.compile("smtp"), re.compile("disk")])
    expect(page.get_by_label("Topic", exact=True)).to_have_value("mail")


@pytest.mark.long
def test_a_hostile_filter_is_answered_and_a_refused_silence_keeps_what_was_typed(
    visitor: Visitor, site: Site, queue: Queue
) -> None:
    die(queue, "mail", "disk 7")
    strange = (
        "topic=%00",
        "error=%00%ff",
        "of=7d&" * 500,
        "topic=" + "x" * 5000,
        "sort=%C0%80&&&=",
        "topic=*&error=%27%3B--",
    )
    assert {httpx.get(f"{site.url}/dead?{query}").status_code for query in strange} == {200}

    visitor.expected.append("422")
    page = visitor.open("/dead/silence?topic=mail&result=failed")
    page.get_by_label("For", exact=True).fill("forever")
    page.get_by_label("Reason").fill("we know")
    page.get_by_role("button", name="Silence").click()

    expect(page.locator(".toast.bad")).to_contain_text("for")
    expect(page.get_by_label("Reason")).to_have_value("we know")


@pytest.mark.long
def test_the_filters_are_there_again_after_a_silence_and_a_redrive(visitor: Visitor, queue: Queue) -> None:
    die(queue, "mail", "disk 7")
    page = visitor.open("/dead?of=1d&topic=mail&sort=last")

    page.get_by_role("link", name="Silence the group").click()
    page.get_by_role("button", name="Silence").click()
    page.wait_for_url("**/dead?of=1d&topic=mail&sort=last")
    page.get_by_role("link", name="Redrive the group").click()
    page.get_by_role("button", name="Redrive it").click()
    expect(page.get_by_role("heading", name="Done")).to_be_visible()
    page.get_by_role("link", name="Back to the dead letters").click()

    page.wait_for_url("**/dead?of=1d&topic=mail&sort=last")
    hostile = visitor.open("/dead/silence?topic=mail&result=failed&subject=//evil.example")
    expect(hostile.get_by_role("link", name="Cancel")).to_have_attribute("href", "/dead")


@pytest.mark.long
def test_many_groups_take_a_row_each(visitor: Visitor, queue: Queue) -> None:
    for n in range(22):
        die(queue, f"topic.{n}", f"ValueError: {'long ' * 40}{n}")

    page = visitor.open("/dead")

    expect(page.locator("tbody tr")).to_have_count(22)
    assert page.evaluate("document.querySelector('#groups').offsetHeight") < 1_700


def test_an_invalid_group_rate_or_silence_is_refused(site: Site, queue: Queue) -> None:
    post = [
        ("/dead/redrive", {"topic": "mail", "result": "success"}),
        ("/dead/redrive", {"topic": "mail", "result": "failed", "rate": "nan"}),
        ("/dead/redrive", {"topic": "mail", "result": "failed", "after": "x"}),
        ("/dead/silence", {"for": "1h"}),
        ("/dead/silence", {"topic": "mail", "result": "failed", "for": "forever"}),
    ]

    agreed = {"as_of": "2026-01-01", "max_id": "7", "most": "5"}
    assert [httpx.post(site.url + path, data=agreed | data).status_code for path, data in post] == [422] * len(post)


@pytest.mark.long
def test_the_page_is_accessible(visitor: Visitor, queue: Queue) -> None:
    die_many(queue, 3)

    assert complaints(visitor, "/dead") + complaints(visitor, "/dead/redrive?topic=mail&result=failed") == []
    assert complaints(visitor, "/dead/silence?topic=mail&result=failed") == []
