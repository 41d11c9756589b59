"""How a message to a sink reads: titles, texts, templates, and what hostile errors cannot do."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from pgrouse.alerts import template
from pgrouse.alerts.notice import Notice, trial_notice

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)


def group(**values: Any) -> dict[str, Any]:
    """Return a group of five dead messages; what is given differs."""
    return {
        "group": "0" * 32,
        "kind": "dead_message",
        "topic": "orders",
        "result": "failed",
        "fingerprint": "abc",
        "status": "firing",
        "count": 5,
        "total": 5,
        "first_at": AT.isoformat(),
        "last_at": AT.isoformat(),
        "first_message_id": 7,
        "last_message_id": 11,
        "error": "ValueError: bad price",
        "mend": None,
        "nth": 1,
        "escalated": False,
        **values,
    }


def notice(*groups: dict[str, Any], title: str = "{{summary}}", body: str | None = None, **told: Any) -> Notice:
    found = list(groups) or [group()]
    status = "firing" if any(each["status"] == "firing" for each in found) else "resolved"
    given = {
        "status": status,
        "count": sum(each["count"] for each in found),
        "group_count": len(found),
        "groups": found,
        **told,
    }
    return Notice("1d", "ops", 3, 1, AT, given, title, body)


@pytest.mark.parametrize(
    ("given", "title"),
    [
        (group(), "5 messages failed in orders: ValueError: bad price"),
        (group(count=1, total=1, result="rejected", error=None), "1 message was rejected in orders"),
        (group(count=1, total=1, result="lock_expired", error=None), "1 message lost its lock in orders"),
        (group(total=1234, error=None), "5 messages failed in orders (1,234 since it began)"),
        (group(topic=None, result=None, error=None), "5 messages died"),
        (group(kind="backlog", result=None), "backlog: orders"),
        (group(kind="cron_late", topic=None, status="resolved"), "over: pg_cron is late"),
    ],
)
def test_the_title_says_what_happened_in_one_line(given: dict[str, Any], title: str) -> None:
    assert notice(given).title == title


def test_the_text_has_what_one_looks_for() -> None:
    body = notice(group(mend="see the price list", escalated=True)).body

    for line in (
        "topic: orders",
        "messages: 7 to 11",
        "fingerprint: abc",
        "to do: see the price list",
        "escalated: yes",
    ):
        assert line in body.splitlines()
    assert body.endswith("ValueError: bad price")


def test_many_groups_are_listed_the_largest_ten_and_how_many_more() -> None:
    shown = notice(*(group(topic=f"t{n}", count=n) for n in range(30, 0, -1)))

    assert shown.title.startswith("465 in 30 groups, first: 30 messages failed in t30")
    assert len(shown.body.splitlines()) == 11
    assert shown.body.splitlines()[-1] == "- and 20 more groups"


def test_a_test_and_a_replay_say_so() -> None:
    assert trial_notice("ops", None, None).title.startswith("[test] ")
    assert notice(replay_of="1c").title.startswith("[again] ")


def test_a_template_is_filled_with_what_it_names() -> None:
    shown = notice(title="{{ topic }}: {{count}} {{result}}", body="{{error}} ({{fingerprint}}, {{sink}} {{id}})")

    assert shown.title == "orders: 5 failed"
    assert shown.body == "ValueError: bad price (abc, ops 1d)"


@pytest.mark.parametrize("text", ["{{eror}}", "{{ topics }}", "{{}}"])
def test_a_place_that_there_is_not_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no place of a template"):
        template.checked(text)


@pytest.mark.parametrize(
    "hostile", ["{{sink}}", "{0.__class__}", "%(topic)s", "${HOME}", "{{error}}", "{% for x in y %}", "\\1"]
)
def test_what_an_error_says_is_never_read_as_a_template(hostile: str) -> None:
    shown = notice(group(error=hostile), title="{{error}}", body="<{{error}}>")

    assert shown.title == hostile
    assert shown.body == f"<{hostile}>"


def test_an_error_rings_nobody_moves_no_cursor_and_begins_no_line_of_a_title() -> None:
    shown = notice(group(error="@everyone <!channel> \x1b[2J\u202egnp\r\nBcc: all@example.com\ud800" + "x" * 9000))

    assert "@everyone" not in shown.body
    assert "<!channel" not in shown.body
    assert not {"\x1b", "\u202e", "\r", "\ud800"} & set(shown.title + shown.body)
    assert "\n" not in shown.title
    assert (len(shown.title) <= 200, len(shown.body) < 1500) == (True, True)


def test_programs_get_everything_as_json() -> None:
    payload = notice().payload()

    assert (payload["id"], payload["sequence"], payload["sink"], payload["count"]) == ("1d", 3, "ops", 5)
    assert payload["groups"] == [group()]
