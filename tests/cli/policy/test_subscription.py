"""`pgrouse subscription`."""

from __future__ import annotations

from tests.cli.shell import Shell
from tests.sql.queue import Queue


def test_a_subscription_is_added_listed_and_removed(pgrouse: Shell, queue: Queue) -> None:
    added = pgrouse("subscription", "add", "user.changed", "mail")
    listed = pgrouse("subscription", "list", "--json").object
    removed = pgrouse("subscription", "remove", "user.changed", "mail")

    assert added.out == "mail gets what is published to user.changed\n"
    assert (listed["topic"], listed["subscriber"], listed["created_by"]) == (
        "user.changed",
        "mail",
        queue.value("SELECT session_user::text"),
    )
    assert removed.out == "mail no longer gets what is published to user.changed\n"
    assert queue.value("SELECT count(*) FROM messages.subscription") == 0


def test_adding_a_subscription_twice_is_reported_without_an_error(pgrouse: Shell) -> None:
    pgrouse("subscription", "add", "a", "b")

    again = pgrouse("subscription", "add", "a", "b")

    assert (again.code, again.out) == (0, "b gets what is published to a, as before: nothing to change\n")
    assert pgrouse("subscription", "add", "a", "b", "--json").object == {
        "topic": "a",
        "subscriber": "b",
        "added": False,
    }


def test_an_unknown_subscription_cannot_be_removed(pgrouse: Shell) -> None:
    ended = pgrouse("subscription", "remove", "a", "b")

    assert (ended.code, ended.err) == (1, "pgrouse: b does not subscribe to a: see `pgrouse subscription list`\n")


def test_the_list_can_be_filtered_by_either_topic(pgrouse: Shell) -> None:
    for topic, subscriber in (("a", "b"), ("b", "c"), ("d", "e")):
        pgrouse("subscription", "add", topic, subscriber)

    rows = pgrouse("subscription", "list", "b", "--json").objects

    assert [(row["topic"], row["subscriber"]) for row in rows] == [("a", "b"), ("b", "c")]
    assert pgrouse("subscription", "list", "z").err == "no subscriptions\n"


def test_an_invalid_topic_name_cannot_subscribe(pgrouse: Shell) -> None:
    ended = pgrouse("subscription", "add", "user.changed", "m ail")

    assert (ended.code, ended.out) == (1, "")
    assert ended.err == (
        "pgrouse: that is not a valid topic name: use 1 to 200 of A-Z a-z 0-9 . _ : - with a letter or digit first\n"
    )
