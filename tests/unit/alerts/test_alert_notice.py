"""The text of alerts: titles, texts, templates, and what hostile errors cannot do."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from pgrouse.alerts.notice import UNKNOWN_QUEUE, Notice, QueueInfo, make_test_notice
from pgrouse.config import alert_template as template

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)


def group(**values: Any) -> dict[str, Any]:
    """Return a group of five dead messages, with these changes."""
    return {
        "group": "0" * 32,
        "kind": "dead_message",
        "severity": "ticket",
        "topic": "orders",
        "result": "failed",
        "fingerprint": "abc",
        "status": "firing",
        "count": 5,
        "total": 5,
        "messages": None,
        "since": AT.isoformat(),
        "first_at": AT.isoformat(),
        "last_at": AT.isoformat(),
        "first_message_id": 7,
        "last_message_id": 11,
        "error": "ValueError: bad price",
        "errors": [],
        "fix": None,
        "nth": 1,
        "escalated": False,
        **values,
    }


QUEUE = QueueInfo("production", "queue", "https://queue.example.com")
FRAME = '  File "/srv/shop/payments.py", line 12, in charge\n    client.post("/charges", json=order.as_json())\n'
DEEP = "Traceback (most recent call last):\n" + FRAME * 8


def notice(
    *groups: dict[str, Any],
    title: str | None = None,
    body: str | None = None,
    queue: QueueInfo = UNKNOWN_QUEUE,
    **fields: Any,
) -> Notice:
    found = list(groups) or [group()]
    status = "firing" if any(each["status"] == "firing" for each in found) else "resolved"
    given = {
        "status": status,
        "count": sum(each["count"] for each in found),
        "group_count": len(found),
        "groups": found,
        **fields,
    }
    return Notice("1d", "ops", 3, 1, AT, given, title, body, queue)


@pytest.mark.parametrize(
    ("given", "title"),
    [
        (group(), "5 messages failed in orders: ValueError: bad price"),
        (group(count=1, total=1, result="rejected", error=None), "1 message was rejected in orders"),
        (group(count=1, total=1, result="lock_expired", error=None), "1 message lost its lock in orders"),
        (group(total=1234, error=None), "5 messages failed in orders (1,234 since it began)"),
        (group(topic=None, result=None, error=None), "5 messages died"),
        (
            group(kind="backlog", result=None, error="messages of orders have been ready for more than 15m"),
            "backlog: messages of orders have been ready for more than 15m",
        ),
        (
            group(kind="breaker", result="open", error="12 of 20 attempts failed"),
            "breaker open: orders: 12 of 20 attempts failed",
        ),
        (
            group(kind="cron_late", topic=None, result="begun", error="no tick since 03:00"),
            "pg_cron late: no tick since 03:00",
        ),
        (group(kind="cron_late", topic=None, status="resolved"), "resolved: pg_cron late"),
    ],
)
def test_the_title_states_the_event_in_one_line(given: dict[str, Any], title: str) -> None:
    assert notice(given).title == title


def test_the_text_has_the_essential_facts() -> None:
    body = notice(group(fix="see the price list", escalated=True)).body

    for line in (
        "topic: orders",
        "messages: 7 to 11",
        "fingerprint: abc",
        "to do: see the price list",
        "escalated: yes",
    ):
        assert line in body.splitlines()
    assert body.endswith("ValueError: bad price")


@pytest.mark.parametrize(
    "message",
    [
        "ConnectionError: could not connect to payments.internal",
        "UniqueViolation: duplicate key\nDETAIL:  Key (id)=(7) exists.",
        "ValidationError: 40 errors for Order" + "\nfield\n  Input should be a number" * 40,
    ],
)
def test_the_title_and_the_text_of_a_traceback_name_the_exception(message: str) -> None:
    shown = notice(group(count=1, total=1, error=f"{DEEP}{message}\n"))

    line = message.splitlines()[0]
    assert shown.title == f"1 message failed in orders: {line}"
    assert line in shown.body.splitlines()
    assert shown.body.splitlines()[-1] == message.splitlines()[-1]
    assert message.splitlines()[-1] in notice(group(error=f"{DEEP}{message}\n"), body="{{error}}").body


def test_the_summary_appears_once() -> None:
    assert notice().title not in notice().body


def test_the_text_has_queue_severity_advice_and_link() -> None:
    shown = notice(group(), queue=QUEUE)

    assert shown.title == "[production] 5 messages failed in orders: ValueError: bad price"
    for line in (
        "severity: ticket",
        "environment: production",
        "database: queue",
        "link: https://queue.example.com/dead?topic=orders",
        "to do: see why: `pgrouse dead group --topic orders`; fix the cause, then"
        " `pgrouse redrive --topic orders --fingerprint abc`",
        "first: 2026-01-01 12:00:00 UTC",
    ):
        assert line in shown.body.splitlines()


@pytest.mark.parametrize(
    ("given", "severity", "link"),
    [
        (group(count=1, total=1), "ticket", "/messages/7"),
        (group(count=1, total=2), "ticket", "/dead?topic=orders"),
        (group(count=1, total=2, topic=None), "ticket", "/dead"),
        (group(kind="breaker", severity="page", topic="a b/c"), "page", "/topics/a%20b%2Fc"),
        (group(kind="workers_down", severity="page", topic=None), "page", "/workers"),
        (group(kind="no_worker", severity="page", topic="a b"), "page", "/messages?topic=a%20b&state=ready"),
        (group(kind="dead_rate", severity="page"), "page", "/dead?topic=orders"),
        (group(kind="cron_late", topic=None), "ticket", "/doctor"),
    ],
)
def test_each_kind_has_the_severity_that_the_server_says_and_its_page(
    given: dict[str, Any], severity: str, link: str
) -> None:
    payload = notice(given, queue=QUEUE).payload()

    assert (payload["severity"], payload["link"]) == (severity, f"https://queue.example.com{link}")
    assert (payload["environment"], payload["database"]) == ("production", "queue")


def test_several_groups_link_to_the_overview_and_have_the_highest_severity() -> None:
    shown = notice(group(), group(kind="no_worker", severity="page"), queue=QUEUE)

    assert (shown.severity, shown.link) == ("page", "https://queue.example.com/")
    assert shown.body.splitlines()[-1] == "link: https://queue.example.com/"


def test_all_texts_format_times_alike() -> None:
    given = group(first_at="2026-11-22T18:50:29.919289+00:00", last_at="2026-11-22T20:50:30.090409+02:00")
    shown = notice(given, body="{{first_at}} {{last_at}}")

    assert shown.body == "2026-11-22 18:50:29 UTC 2026-11-22 18:50:30 UTC"
    assert "last: 2026-11-22 18:50:30 UTC" in notice(given).body.splitlines()


def test_a_resolved_alert_has_no_advice() -> None:
    assert "to do" not in notice(group(kind="breaker", status="resolved", fix="fix it")).body


def test_a_custom_template_decides_whether_the_environment_is_named() -> None:
    shown = notice(title="{{environment}}: {{topic}}", body="{{severity}} {{database}} {{link}}", queue=QUEUE)

    assert (shown.title, shown.body) == (
        "production: orders",
        "ticket queue https://queue.example.com/dead?topic=orders",
    )
    assert notice(title="{{environment}}{{link}}{{database}}{{topic}}").title == "orders"


def test_many_groups_are_listed_as_the_largest_ten_and_a_count() -> None:
    shown = notice(*(group(topic=f"t{n}", count=n) for n in range(30, 0, -1)))

    assert shown.title.startswith("30 problems, first: 30 messages failed in t30")
    assert [line for line in shown.body.splitlines() if line.startswith("- ")] == [
        *(f"- {n} messages failed in t{n} (5 since it began): ValueError: bad price" for n in range(30, 20, -1)),
        "- and 20 more groups",
    ]
    assert shown.body.splitlines()[-1] == "- and 20 more groups"


@pytest.mark.parametrize(
    ("states", "title"),
    [
        (["firing"] * 2, "2 problems, first: "),
        (["firing", "resolved"], "1 problem and 1 resolved, first: "),
        (["resolved"] * 3, "3 resolved, first: resolved: "),
    ],
)
def test_the_title_of_several_groups_counts_problems_and_what_is_resolved(states: list[str], title: str) -> None:
    shown = notice(*(group(kind="backlog", topic=f"t{n}", status=state) for n, state in enumerate(states)))

    assert shown.title.startswith(title)


@pytest.mark.parametrize(
    ("given", "title"),
    [
        ({"messages": 7}, "backlog (7 messages now): old messages of orders"),
        ({"messages": 1}, "backlog (1 message now): old messages of orders"),
        ({"messages": 52_123}, "backlog (≈ 52,000 messages now): old messages of orders"),
        ({"messages": 1_863, "kind": "dead_rate"}, "many dead (1,863 messages now): old messages of orders"),
        (
            {"messages": 7, "nth": 2},
            "still, since 2026-01-01 12:00:00 UTC: backlog (7 messages now): old messages of orders",
        ),
    ],
)
def test_a_condition_says_how_many_messages_it_is_about_and_a_repetition_since_when(
    given: dict[str, Any], title: str
) -> None:
    assert notice(group(**{"kind": "backlog", "error": "old messages of orders", **given})).title == title


def test_a_long_title_keeps_the_number() -> None:
    shown = notice(group(kind="workers_down", nth=2, messages=7, topic=None, error="no worker is alive: " + "w" * 300))

    assert len(shown.title) == 200
    assert shown.title.startswith("still, since 2026-01-01 12:00:00 UTC: workers down (7 messages now): no worker is")


def test_a_condition_names_the_errors_of_its_dead_messages_and_which_are_new() -> None:
    errors = [
        {"error": "Traceback\nKeyError: 'x'", "count": 3, "is_new": True},
        {"error": "ConnectionError: refused", "count": 1_200, "is_new": False},
        {"error": "ValueError: bad", "count": 40, "is_new": False},
    ]

    lines = notice(group(kind="dead_rate", since="2026-01-01T11:00:00+00:00", errors=errors)).body.splitlines()

    assert "first: 2026-01-01 11:00:00 UTC" in lines
    assert "errors: ConnectionError: refused (1,200); ValueError: bad (40)" in lines
    assert "new errors: KeyError: 'x' (3)" in lines


def test_each_of_several_groups_has_its_advice() -> None:
    shown = notice(group(kind="no_worker", error="no worker handles it", fix="start a daemon"), group())

    assert shown.body.splitlines()[:2] == ["- no worker: orders: no worker handles it", "  to do: start a daemon"]
    assert shown.body.splitlines()[3].startswith("  to do: see why: `pgrouse dead group --topic orders`")


def test_a_test_and_a_replay_are_marked() -> None:
    assert make_test_notice("ops", None, None).title.startswith("[test] ")
    assert notice(replay_of="1c").title.startswith("[again] ")


def test_a_template_is_filled_with_the_values_of_its_names() -> None:
    shown = notice(title="{{ topic }}: {{count}} {{result}}", body="{{error}} ({{fingerprint}}, {{sink}} {{id}})")

    assert shown.title == "orders: 5 failed"
    assert shown.body == "ValueError: bad price (abc, ops 1d)"


@pytest.mark.parametrize("text", ["{{eror}}", "{{ topics }}", "{{}}"])
def test_an_unknown_placeholder_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a placeholder"):
        template.check_placeholders(text)


@pytest.mark.parametrize(
    "hostile", ["{{sink}}", "{0.__class__}", "%(topic)s", "${HOME}", "{{error}}", "{% for x in y %}", "\\1"]
)
def test_the_text_of_an_error_is_never_read_as_a_template(hostile: str) -> None:
    shown = notice(group(error=hostile), title="{{error}}", body="<{{error}}>")

    assert shown.title == hostile
    assert shown.body == f"<{hostile}>"


def test_an_error_cannot_mention_people_control_a_terminal_or_break_a_title() -> None:
    shown = notice(group(error="@everyone <!channel> \x1b[2J\u202egnp\r\nBcc: all@example.com\ud800" + "x" * 9000))

    assert "@everyone" not in shown.body
    assert "<!channel" not in shown.body
    assert not {"\x1b", "\u202e", "\r", "\ud800"} & set(shown.title + shown.body)
    assert "\n" not in shown.title
    assert (len(shown.title) <= 200, len(shown.body) < 1500) == (True, True)


def test_programs_get_all_fields_as_json() -> None:
    payload = notice().payload()

    assert (payload["id"], payload["sequence"], payload["sink"], payload["count"]) == ("1d", 3, "ops", 5)
    assert payload["groups"] == [group()]
