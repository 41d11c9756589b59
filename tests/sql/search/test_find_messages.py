"""messages.find_messages: pages of messages, by filter."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from psycopg import errors
from psycopg.types.json import Jsonb

from tests.sql.deaths import die, die_ago
from tests.sql.queue import Queue, Row

# messages.find_messages: a search over all messages, page by page, with a bound of what it reads.


def page(queue: Queue, **filters: Any) -> tuple[list[int], Any]:
    """Return the ids of one page and the position where it ends."""
    named = ", ".join(f"p_{name} => %({name})s" for name in filters)
    values = {
        name: Jsonb(value) if name in ("value", "after") and value is not None else value
        for name, value in filters.items()
    }
    rows = queue.rows(f"SELECT * FROM messages.find_messages({named})", values)
    assert rows[-1].id is None
    return [row.id for row in rows[:-1]], rows[-1].place


def found(queue: Queue, **filters: Any) -> list[int]:
    return page(queue, **filters)[0]


def walk(queue: Queue, **filters: Any) -> list[int]:
    """Return the ids of all pages."""
    ids, place = page(queue, **filters)
    while place is not None:
        more, place = page(queue, after=place, **filters)
        ids += more
    return ids


@pytest.fixture
def every_state(queue: Queue) -> dict[str, int]:
    """One message in each state, by the state's name."""
    queue.policy("a", max_attempts=5)
    ids = {}
    for state in ("success", "rejected", "failed"):
        ids[state] = queue.publish("a")
        queue.settle(
            {"success": "complete", "rejected": "reject", "failed": "fail"}[state],
            queue.claim("a"),
            *([["boom"]] if state != "success" else []),
        )
    ids["cancelled"] = queue.publish("a")
    queue.call("cancel", [ids["cancelled"]])
    ids["retrying"] = queue.publish("a")
    queue.settle("retry", queue.claim("a"), ["disk 7 is full"], ["1 hour"])
    ids["running"] = queue.publish("a")
    queue.claim("a")
    ids["delayed"] = queue.publish("a", wait="1 hour")
    ids["ready"] = queue.publish("a")
    return ids


def test_each_state_is_found_by_its_name(queue: Queue, every_state: dict[str, int]) -> None:
    for state, message_id in every_state.items():
        assert found(queue, states=[state]) == [message_id], state


def test_the_worker_the_attempts_and_the_headers_are_filters(queue: Queue, every_state: dict[str, int]) -> None:
    tagged = queue.publish("b", headers={"tenant": "acme", "shard": 7})
    worked = {each: every_state[each] for each in ("running", "success", "rejected", "failed")}

    assert set(
        found(queue, worker=queue.value("SELECT locked_by FROM messages.message WHERE claim_id IS NOT NULL"))
    ) == set(worked.values())
    assert found(queue, worker="none") == []
    assert every_state["ready"] not in found(queue, attempts=1)
    assert found(queue, attempts=2) == []
    assert found(queue, headers=Jsonb({"shard": 7})) == [tagged]
    assert found(queue, headers=Jsonb({"tenant": "other"})) == []


@pytest.mark.parametrize("wrong", [{"headers": Jsonb([1])}, {"attempts": -1}])
def test_filters_that_make_no_sense_are_refused(queue: Queue, wrong: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidParameterValue):
        found(queue, **wrong)


def test_without_filters_running_messages_come_first_then_waiting_then_ended(
    queue: Queue, every_state: dict[str, int]
) -> None:
    names = {message_id: state for state, message_id in every_state.items()}

    order = [names[message_id] for message_id in found(queue)]

    assert order == ["running", "ready", "retrying", "delayed", "cancelled", "failed", "rejected", "success"]


@pytest.mark.parametrize("channel", [None, "c"])
def test_a_message_whose_lock_has_expired_is_found_and_shown_as_retrying(queue: Queue, channel: str | None) -> None:
    queue.policy(max_attempts=2, lock_expired_delay="1 hour")
    published = queue.publish(channel=channel)
    queue.claim(lock_duration="0 s")
    queue.call("expire_locks")

    rows = queue.rows("SELECT * FROM messages.find_messages(p_states => '{retrying}')")

    assert [(row.id, row.state) for row in rows[:-1]] == [(published, "retrying")]


def test_a_row_has_the_columns_of_a_list(queue: Queue, every_state: dict[str, int]) -> None:
    rows = queue.rows("SELECT * FROM messages.find_messages(p_states => '{failed,retrying,running}', p_preview => 50)")
    by_state = {row.state: row for row in rows[:-1]}

    assert (by_state["failed"].error, by_state["failed"].archived_at is not None) == ("boom", True)
    assert (by_state["retrying"].error, by_state["retrying"].preview) == ("disk 7 is full", "1")
    assert (by_state["running"].worker, by_state["running"].lock_expires_at is not None) == ("w", True)


@pytest.mark.parametrize(
    "filters",
    [
        {"topic": "b"},
        {"channel": "c'1"},
        {"key": "k%"},
        {"topic": "b", "key": "k%"},
        {"path": "$.customer.id", "value": 9007199254740993},
        {"path": "$.items[*].sku", "value": 'x"y'},
        {"path": '$.customer ? (@.name like_regex "^A")'},
        {"topics": ["a*", "b"]},
    ],
)
def test_each_filter_finds_waiting_running_and_ended_messages(queue: Queue, filters: dict[str, Any]) -> None:
    payload = {"customer": {"id": 9007199254740993, "name": "Ann"}, "items": [{"sku": 'x"y'}]}
    columns = {"channel": "c'1", "key": "k%", "payload": payload}
    ended = queue.publish("b", **columns)
    queue.settle("complete", queue.claim("b"))
    running = queue.publish("b", **columns)
    queue.claim("b")
    waiting = queue.publish("b", **columns)
    queue.publish("other", channel="c", key="kx", payload={"customer": {"id": 9007199254740992, "name": "Bob"}})

    assert found(queue, **filters) == [running, waiting, ended]


def test_the_batch_finds_waiting_running_ended_and_dead_messages(queue: Queue) -> None:
    batch = queue.call("create_batch", "import")
    published = [queue.publish("b", batch_id=batch) for _ in range(4)]
    for settle in ("complete", "fail"):
        queue.settle(settle, queue.claim("b", limit=1), [None if settle == "complete" else "boom"])
    queue.claim("b", limit=1)
    queue.publish("b", batch_id=queue.call("create_batch", "other"))
    ended, dead, running, waiting = published

    assert found(queue, batch_id=batch) == [running, waiting, dead, ended]
    assert found(queue, batch_id=batch, states=["failed"]) == [dead]


def test_errors_and_fingerprints_are_found_also_for_messages_that_will_be_retried(
    queue: Queue, every_state: dict[str, int]
) -> None:
    fingerprint = queue.value("SELECT messages.error_fingerprint('disk 9 is full')")

    assert found(queue, error="DISK 7") == found(queue, fingerprint=fingerprint) == [every_state["retrying"]]
    assert found(queue, error="boom") == [every_state["failed"], every_state["rejected"]]


def test_times_are_those_of_the_publish_and_of_the_end(queue: Queue) -> None:
    old = die_ago(queue, "2 days")
    new, running = die(queue), queue.publish("run")
    queue.claim("run")
    waiting, earlier = queue.publish(), queue.publish()
    queue.conn.execute(
        "UPDATE messages.message SET created_at = created_at - interval '2 days' WHERE id = %s", [earlier]
    )
    yesterday = queue.value("SELECT now() - interval '1 day'")

    assert found(queue, since=yesterday) == [running, waiting, new]
    assert found(queue, until=yesterday) == [earlier, old]


def test_a_search_of_dead_messages_begins_with_the_latest_whatever_their_topics(queue: Queue) -> None:
    new, old, middle = die(queue, "a"), die_ago(queue, "2 hours", "b"), die_ago(queue, "1 hour", "a")

    assert walk(queue, states=["failed", "rejected"], limit=1) == [new, middle, old]
    assert found(queue, states=["failed"], topic="b") == [old]


def test_pages_follow_each_other_without_a_gap(queue: Queue, every_state: dict[str, int]) -> None:
    queue.publish_many(5, "b", channel="c")
    queue.publish_many(5, "b", channel="d", priority=1)
    queue.publish_many(3, "b", priority=0)
    queue.publish_many(3, "b")
    once = found(queue)

    assert walk(queue, limit=1) == walk(queue, limit=3) == walk(queue, max_examined=2) == once
    assert len(once) == len(set(once)) == 24


def test_one_key_in_many_topics_is_found_page_by_page(queue: Queue) -> None:
    queue.policy("a", max_attempts=5)
    tried = queue.publish("a", key="k")
    queue.settle("retry", queue.claim("a"), ["boom"], ["0"])
    ids = [queue.publish(topic, key="k") for topic in ("a", "b", "c")]

    first, place = page(queue, key="k", limit=1)

    assert (len(first), place is not None) == (1, True)
    assert walk(queue, key="k", limit=1) == [ids[0], tried, *ids[1:]]


def test_without_an_index_a_page_reads_a_bounded_number_and_returns_where_to_continue(queue: Queue) -> None:
    *_, last = queue.publish_many(50, payload=None, body=b"x")
    queue.conn.execute("UPDATE messages.message SET body = NULL, payload = '{\"a\": 1}' WHERE id = %s", [last])

    rows = queue.rows("SELECT * FROM messages.find_messages(p_path => '$.a', p_max_examined => 20)")

    assert [(row.id, row.examined) for row in rows] == [(None, 20)]
    assert walk(queue, path="$.a", max_examined=20) == [last]


@pytest.mark.newest
def test_a_million_ready_messages_do_not_come_before_the_delayed(own_queue: Queue) -> None:
    own_queue.publish_many(20_000)
    delayed = own_queue.publish(wait="1 hour")
    own_queue.conn.execute("VACUUM ANALYZE messages.message")

    query = "SELECT * FROM messages.find_messages(p_states => '{delayed}')"
    assert own_queue.rows(query)[0].id == delayed
    assert own_queue.buffers(query) < 300


def test_a_large_payload_is_not_decompressed_for_a_preview(queue: Queue) -> None:
    queue.publish(payload={"noise": [hashlib.sha256(bytes([n % 256, n // 256])).hexdigest() for n in range(2000)]})
    queue.publish(body=b"12345")

    rows = queue.rows("SELECT * FROM messages.find_messages(p_preview => 20)")

    assert rows[0].preview.startswith("JSON of about ")
    assert rows[1].preview == "5 bytes"


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ({"states": ["redy"]}, 'state of a search is "redy"'),
        ({"path": "$.a ["}, "path of a search is"),
        ({"path": "$.a", "value": [1]}, "value of a search is a JSON array"),
        ({"value": 1}, "value of a search is a JSON number"),
        ({"after": ["nowhere"]}, "place of a search is"),
        ({"after": {"a": 1}}, "place of a search is"),
        ({"limit": 0}, "limit of a search is 0"),
        ({"limit": 10_001}, "limit of a search is 10001"),
        ({"max_examined": 0}, "max_examined of a search is 0"),
        ({"max_examined": 1_000_001}, "max_examined of a search is 1000001"),
        ({"preview": -1}, "preview of a search is -1"),
        ({"preview": 10_001}, "preview of a search is 10001"),
    ],
)
def test_invalid_arguments_are_refused_by_name(queue: Queue, filters: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.InvalidParameterValue, match=message):
        found(queue, **filters)


# messages.found: the columns of a list, in the given order.


# messages.payload_preview: the beginning of a payload, without reading all of it.


def test_a_small_payload_is_cut(queue: Queue) -> None:
    assert queue.value("SELECT messages.payload_preview('[1, 2, 3]', NULL, 4)") == "[1, "


def test_zero_requests_no_preview(queue: Queue) -> None:
    assert queue.value("SELECT messages.payload_preview('1', NULL, 0)") is None


# messages.matches_search: a message must match all filters of a search.


def test_a_path_that_fails_on_a_payload_does_not_match(queue: Queue) -> None:
    queue.publish(payload={"a": 1})

    assert found(queue, path="strict $.a.b.c") == []


# messages.search_dead: dead messages only, by their index.

EVERYTHING = (
    "(NULL, NULL, NULL, %s::text[], NULL, NULL, NULL, NULL, NULL, '{}', NULL, NULL, NULL, NULL, NULL, NULL)"
    "::messages.search"
)


def search_dead_walk(queue: Queue, place: Any = None, limit: int = 100, max_examined: int = 100) -> Row:
    query = f"SELECT * FROM messages.search_dead({EVERYTHING}, %s, %s, %s)"
    return queue.row(query, [["failed"], None if place is None else Jsonb(place), limit, max_examined])


def test_batches_of_five_hundred_are_merged_without_a_gap(queue: Queue) -> None:
    ids = []
    for topic in ("a", "b"):
        ids += queue.publish_many(600, topic)
        queue.conn.execute("SET client_min_messages = error")
        for _ in range(6):
            claimed = queue.claim(topic)
            queue.settle("fail", claimed, ["boom"] * len(claimed))

    walked = search_dead_walk(queue, limit=5000, max_examined=5000)

    died = queue.rows("SELECT id FROM messages.message_archive ORDER BY archived_at DESC, id DESC")
    assert walked.ids == [row.id for row in died]
    assert sorted(walked.ids) == sorted(ids)
    assert walked.place is None
