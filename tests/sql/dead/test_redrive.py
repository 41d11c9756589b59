"""messages.redrive and its variants: by id, by filter, edited, as a preview."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from psycopg import errors, sql
from psycopg.types.json import Jsonb

from tests.sql.deaths import copy_of, die, die_ago, outcomes
from tests.sql.deaths import die as dead
from tests.sql.queue import Background, Listener, Queue, Row

# messages.redrive: redrives dead messages, each once.

REDRIVEN = "SELECT archived_id, message_id FROM messages.redrive(%s) WHERE outcome = 'redriven'"


def redrive(queue: Queue, *ids: int) -> dict[int, int]:
    """Return the new message's id by the dead one's, of those that were redriven."""
    return {row.archived_id: row.message_id for row in queue.rows(REDRIVEN, [list(ids)])}


def test_a_dead_message_becomes_a_new_one_that_names_its_ancestor(queue: Queue) -> None:
    died = dead(queue)

    put_back = redrive(queue, died)

    (claimed,) = queue.claim()
    assert put_back == {died: claimed.id}
    assert queue.message(claimed.id).redriven_from == died
    assert claimed.attempt == 1


def test_the_new_message_has_everything_that_described_the_dead_one(queue: Queue) -> None:
    content: dict[str, Any] = {"channel": "c", "key": "k", "priority": 3, "max_attempts": 7}
    content |= {"payload": {"n": 1}, "headers": {"h": 1}}
    died = dead(queue, **content, state=sql.SQL("'[1]'::jsonb"))

    new = queue.message(redrive(queue, died)[died])

    assert {c: getattr(new, c) for c in content} == content
    assert (new.state, new.attempts, new.history) == ([1], 0, None)


def test_the_archive_row_of_a_redriven_message_is_not_changed(queue: Queue) -> None:
    died = dead(queue)
    before = queue.archived(died)

    redrive(queue, died)

    assert queue.archived(died) == before


@pytest.mark.parametrize(("settle", "arguments"), [("reject", (["x"],)), ("fail", (["x"],))])
def test_every_dead_result_can_be_redriven(queue: Queue, settle: str, arguments: Any) -> None:
    published = queue.publish()
    queue.settle(settle, queue.claim(), *arguments)

    assert list(redrive(queue, published)) == [published]


def test_successful_cancelled_and_live_messages_are_not_redriven(queue: Queue) -> None:
    succeeded = queue.publish()
    queue.settle("complete", queue.claim())
    cancelled, running, waiting = queue.publish_many(3)
    queue.call("cancel", [cancelled])
    queue.claim(limit=1)

    assert redrive(queue, succeeded, cancelled, running, waiting, 4711) == {}


@pytest.mark.parametrize("ids", [[], None])
def test_no_ids_redrive_nothing(queue: Queue, ids: Any) -> None:
    assert queue.rows(REDRIVEN, [ids]) == []


def test_a_message_is_redriven_once(queue: Queue) -> None:
    died = dead(queue)

    assert list(redrive(queue, died, died)) == [died]
    assert redrive(queue, died) == {}
    assert len(queue.ids()) == 1


@pytest.mark.parametrize("is_rolled_back", [False, True])
def test_of_two_concurrent_redrives_the_second_waits_and_does_nothing_unless_the_first_is_rolled_back(
    queue: Queue, other: Queue, background: Background, is_rolled_back: bool
) -> None:
    died = dead(queue)

    with queue.conn.transaction(force_rollback=is_rolled_back):
        assert list(redrive(queue, died)) == [died]
        second = background.start_blocked(other, redrive, other, died)

    assert list(second.result(timeout=60)) == ([died] if is_rolled_back else [])
    assert len(queue.ids()) == 1


def test_a_redriven_message_that_dies_again_can_be_redriven_again(queue: Queue) -> None:
    first = dead(queue)
    second = redrive(queue, first)[first]
    queue.settle("fail", queue.claim(), ["boom again"])

    third = redrive(queue, first, second)

    assert list(third) == [second]
    assert queue.message(third[second]).redriven_from == second


def test_a_message_whose_key_is_ready_again_is_redriven_once_the_key_is_free(queue: Queue) -> None:
    died = dead(queue, key="k")
    newer = queue.publish(key="k")
    other = dead(queue, "u", key="k")

    assert list(redrive(queue, died, other)) == [other]
    assert queue.message(newer) is not None
    queue.settle("complete", queue.claim())
    assert list(redrive(queue, died)) == [died]


def test_of_several_dead_messages_with_one_key_the_newest_is_redriven(queue: Queue) -> None:
    oldest, older, newest = (dead(queue, key="k") for _ in range(3))
    keyless = dead(queue)

    assert sorted(redrive(queue, oldest, newest, older, keyless)) == [newest, keyless]


def test_a_redrive_notifies_like_every_publish(queue: Queue, listen: Callable[..., Listener]) -> None:
    died = dead(queue)
    listener = listen("new_message")
    queue.arm()

    put_back = redrive(queue, died)

    assert listener.received() == [str(put_back[died])]


def test_the_log_records_the_user_the_message_and_the_time(queue: Queue) -> None:
    died = dead(queue)

    put_back = redrive(queue, died)

    log = queue.row("SELECT * FROM messages.redrive_log")
    assert (log.archived_id, log.message_id, log.redriven_by) == (died, put_back[died], "postgres")


def test_the_outcome_of_each_given_message_is_returned(queue: Queue) -> None:
    died, before, superseded = dead(queue), dead(queue), dead(queue, key="k")
    (again,) = redrive(queue, before).values()
    newer = queue.publish(key="k")
    alive = queue.publish()

    outcome_of = {
        row.archived_id: row
        for row in queue.rows("SELECT * FROM messages.redrive(%s)", [[died, before, superseded, alive, 4711]])
    }

    assert {asked: row.outcome for asked, row in outcome_of.items()} == {
        died: "redriven",
        before: "redriven_before",
        superseded: "superseded",
        alive: "not_dead",
        4711: "not_dead",
    }
    assert (outcome_of[before].message_id, outcome_of[superseded].message_id, outcome_of[alive].message_id) == (
        again,
        newer,
        None,
    )


def test_redrives_are_counted_from_ancestor_to_descendant(queue: Queue) -> None:
    first = dead(queue)

    second = redrive(queue, first)[first]
    queue.settle("fail", queue.claim(), ["boom"])
    third = redrive(queue, second)[second]

    assert (queue.archived(second).redrives, queue.message(third).redrives) == (1, 2)


def test_a_message_that_reached_max_redrives_stays_dead_unless_forced(queue: Queue) -> None:
    queue.policy(max_redrives=1)
    first = dead(queue)
    second = redrive(queue, first)[first]
    queue.settle("fail", queue.claim(), ["boom"])

    assert outcomes(queue, "redrive", [second]) == {second: "too_often"}
    assert queue.ids() == []
    forced = queue.rows("SELECT outcome FROM messages.redrive(%s, p_force => true)", [[second]])
    assert [row.outcome for row in forced] == ["redriven"]


@pytest.mark.parametrize(("bound", "outcome"), [(0, "redriven"), (11, "redriven"), (None, "too_often")])
def test_a_higher_bound_or_none_of_the_topic_wins_over_the_default(
    queue: Queue, bound: int | None, outcome: str
) -> None:
    queue.policy(max_redrives=bound)
    died = dead(queue)
    queue.conn.execute("UPDATE messages.message_archive SET redrives = 10 WHERE id = %s", [died])

    assert outcomes(queue, "redrive", [died]) == {died: outcome}


def test_a_rate_spreads_the_messages_over_time_in_the_order_in_which_they_died(queue: Queue) -> None:
    died = [dead(queue) for _ in range(5)]
    queue.later("0")

    queue.rows("SELECT * FROM messages.redrive(%s, p_rate => 2, p_delay => '10 s')", [died])

    due = (
        "SELECT redriven_from, extract(epoch FROM available_at - messages.now())::float AS s "
        "FROM messages.message ORDER BY id"
    )
    assert [tuple(row) for row in queue.rows(due)] == list(zip(died, [10, 10.5, 11, 11.5, 12], strict=True))


@pytest.mark.parametrize("rate", [0, -1, 0.0001, 1e7])
def test_an_invalid_rate_is_refused(queue: Queue, rate: float) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="rate of a redrive is ") as caught:
        queue.rows("SELECT * FROM messages.redrive(%s, p_rate => %s)", [[1], rate])

    assert caught.value.diag.message_hint == "use 0.001 to 1000000 messages a second"


def test_a_negative_delay_is_refused(queue: Queue) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="delay of a redrive is -"):
        queue.rows("SELECT * FROM messages.redrive(%s, p_delay => '-1 s')", [[1]])


def test_with_key_on_retry_keep_a_message_whose_key_is_taken_is_redriven_without_it(queue: Queue) -> None:
    queue.policy(key_on_retry="keep")
    older, newer = dead(queue, key="k"), dead(queue, key="k")
    waiting = queue.publish(key="l")
    taken = queue.archived(dead(queue, "t", key="m")).id
    queue.publish(key="m")

    redriven = outcomes(queue, "redrive", [older, newer, taken])

    assert redriven == {older: "keyless", newer: "redriven", taken: "keyless"}
    keys = {
        row.redriven_from: row.key
        for row in queue.rows("SELECT redriven_from, key FROM messages.message WHERE redriven_from IS NOT NULL")
    }
    assert keys == {older: None, newer: "k", taken: None}
    assert queue.message(waiting) is not None


@pytest.mark.parametrize(
    ("policy", "is_rolled_back", "outcome", "count"),
    [("supersede", False, "superseded", 1), ("keep", False, "keyless", 2), ("supersede", True, "redriven", 1)],
)
def test_a_key_that_is_published_at_the_same_time_is_no_error(
    queue: Queue, other: Queue, background: Background, policy: str, is_rolled_back: bool, outcome: str, count: int
) -> None:
    queue.policy(key_on_retry=policy)
    died = dead(queue, key="k")

    with queue.conn.transaction(force_rollback=is_rolled_back):
        queue.publish(key="k")
        redriving = background.start_blocked(other, outcomes, other, "redrive", [died])

    assert redriving.result(timeout=60) == {died: outcome}
    assert len(queue.ids()) == count
    assert queue.value("SELECT count(*) FROM messages.redrive_log") == (outcome != "superseded")


def test_a_waiting_copy_in_the_dlq_is_cancelled_when_its_original_is_redriven(queue: Queue) -> None:
    queue.policy(dead_letter=True)
    died = dead(queue)
    copy = copy_of(queue, died)

    new = redrive(queue, died)[died]

    assert queue.ids() == [new]
    assert (queue.archived(copy.id).result, queue.archived(copy.id).error) == (
        "cancelled",
        f"its original {died} was put back as message {new}",
    )


def test_a_running_copy_is_left_to_its_worker(queue: Queue) -> None:
    queue.policy(dead_letter=True)
    died = dead(queue)
    (working,) = queue.claim("t.dlq")

    redrive(queue, died)

    assert queue.settle("complete", [working]) == []


def test_a_dead_copy_is_redriven_into_its_dlq_and_belongs_to_the_original_again(queue: Queue) -> None:
    queue.policy(dead_letter=True)
    died = dead(queue)
    (working,) = queue.claim("t.dlq")
    queue.settle("fail", [working], ["worse"])

    new = queue.message(redrive(queue, working.id)[working.id])

    assert (new.topic, new.origin_id, new.original_topic, new.max_attempts) == ("t.dlq", died, "t", 1)
    assert new.dlq_moved_at is not None
    assert queue.value("SELECT message_id FROM messages.dead_letter WHERE origin_id = %s", [died]) == new.id


# messages.redrive_edited: redrives a dead message with other contents.


def edited(queue: Queue, died: int, **edits: Any) -> Row:
    """Redrive it with these edits and return the new message."""
    values = {name: Jsonb(value) if name in ("payload", "headers") else value for name, value in edits.items()}
    named = "".join(f", p_{name} => %({name})s" for name in edits)
    (row,) = queue.rows(f"SELECT * FROM messages.redrive_edited(%(id)s{named})", {"id": died, **values})
    assert row.outcome == "redriven"
    return queue.message(row.message_id)


def test_payload_and_headers_are_merged_key_by_key_and_null_removes_a_key(queue: Queue) -> None:
    died = die(queue, payload={"id": 7, "to": {"city": "Bonn", "zip": 1}}, headers={"a": 1, "b": 2})

    new = edited(queue, died, payload={"to": {"zip": 53111}, "id": None}, headers={"a": None, "c": 3})

    assert (new.payload, new.headers) == ({"to": {"city": "Bonn", "zip": 53111}}, {"b": 2, "c": 3})


def test_without_merge_they_are_replaced(queue: Queue) -> None:
    died = die(queue, payload={"id": 7, "n": 1}, headers={"a": 1})

    new = edited(queue, died, payload={"id": 8}, headers={"b": 2}, merge=False)

    assert (new.payload, new.headers) == ({"id": 8}, {"b": 2})


@pytest.mark.parametrize("payload", [[1, 2], "text", 7, None])
def test_a_payload_of_any_kind_may_be_given(queue: Queue, payload: Any) -> None:
    assert edited(queue, die(queue, payload={"id": 7}), payload=payload).payload == payload


def test_a_payload_replaces_a_body(queue: Queue) -> None:
    new = edited(queue, die(queue, body=b"\x00"), payload={"id": 7})

    assert (new.payload, new.body) == ({"id": 7}, None)


def test_unedited_parts_are_kept(queue: Queue) -> None:
    died = die(queue, payload={"id": 7}, headers={"a": 1}, key="k", channel="c", priority=2)

    new = edited(queue, died, topic="other")

    assert (new.topic, new.payload, new.headers) == ("other", {"id": 7}, {"a": 1})
    assert (new.key, new.channel, new.priority) == ("k", "c", 2)
    assert new.redriven_from == died


def test_a_dead_copy_can_be_sent_back_to_a_topic_by_name_and_is_no_dead_letter_then(queue: Queue) -> None:
    queue.policy(dead_letter=True)
    copy = copy_of(queue, die(queue))
    queue.settle("fail", queue.claim("t.dlq"), ["worse"])

    new = edited(queue, copy.id, topic="t")

    assert (new.topic, new.origin_id, new.original_topic, new.dlq_moved_at) == ("t", None, None, None)


def test_the_key_policy_and_the_bound_of_the_target_topic_apply(queue: Queue) -> None:
    queue.policy("other", key_on_retry="keep")
    died = die(queue, key="k")
    queue.publish("other", key="k")

    (row,) = queue.rows("SELECT * FROM messages.redrive_edited(%s, p_topic => 'other')", [died])

    assert row.outcome == "keyless"


@pytest.mark.parametrize("topic", ["", "no name", "-a", "x" * 201, "orders.dlq"])
def test_an_invalid_target_topic_is_refused(queue: Queue, topic: str) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="topic of a redrive is ") as caught:
        edited(queue, die(queue), topic=topic)

    assert caught.value.diag.message_hint.startswith("use ")
    assert queue.ids() == []


@pytest.mark.parametrize("headers", [[1], "x", 7])
def test_headers_that_are_not_an_object_are_refused(queue: Queue, headers: Any) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="headers of a redrive are a JSON "):
        edited(queue, die(queue), headers=headers)


def test_an_envelope_is_not_replaced_by_an_unencrypted_payload_even_if_no_header_names_its_key(queue: Queue) -> None:
    died = die(queue, body=b"\x93PGR\x01")

    with pytest.raises(errors.InvalidParameterValue, match=f"message {died} is encrypted"):
        edited(queue, died, payload={"id": 7})
    assert edited(queue, died, headers={"b": 2}).body == b"\x93PGR\x01"


# messages.redrive_where: redrives dead messages by filters.


def redriven(queue: Queue, **filters: Any) -> list[int]:
    named = ", ".join(f"p_{name} => %({name})s" for name in filters)
    rows = queue.rows(f"SELECT * FROM messages.redrive_where({named}) WHERE outcome = 'redriven'", filters)
    return [row.archived_id for row in rows]


def test_without_a_filter_all_are_redriven(queue: Queue) -> None:
    died = [die(queue, "a"), die(queue, "b")]

    assert redriven(queue) == died


def test_several_filters_are_combined(queue: Queue) -> None:
    wanted = die(queue, "a", "disk 7 is full")
    die(queue, "a", "no route")
    die(queue, "b", "disk 8 is full")
    die(queue, "a", "disk 9 is full", settle="reject")
    fingerprint = queue.archived(wanted).error_fingerprint

    assert redriven(queue, topic="a", result="failed", fingerprint=fingerprint, error="DISK") == [wanted]


def test_a_limit_redrives_the_oldest_and_the_next_call_the_others(queue: Queue) -> None:
    new, old = die(queue), die_ago(queue, "1 hour")

    assert redriven(queue, limit=1) == [old]
    assert redriven(queue, limit=1) == [new]
    assert redriven(queue, limit=1) == []


@pytest.mark.parametrize("limit", [-1, None])
def test_an_invalid_limit_is_refused(queue: Queue, limit: Any) -> None:
    with pytest.raises(Exception, match="limit of dead messages is"):
        redriven(queue, limit=limit)


# messages.preview_redrive: what a redrive would do, without doing it.

TABLES = """
    SELECT (SELECT count(*) FROM messages.message) AS live, (SELECT count(*) FROM messages.redrive_log) AS logged,
           (SELECT last_value FROM messages.message_id_seq)
"""


def test_its_outcomes_are_those_of_the_redrive(queue: Queue) -> None:
    queue.policy(max_redrives=3)
    queue.policy("keeps", key_on_retry="keep")
    ids = [die(queue), die(queue, key="k"), die(queue, key="k"), die(queue, key="l"), die(queue, "keeps", key="m")]
    often, before = die(queue), die(queue)
    queue.conn.execute("UPDATE messages.message_archive SET redrives = 3 WHERE id = %s", [often])
    outcomes(queue, "redrive", [before])
    large = die(queue, key="large")
    queue.conn.execute(
        "UPDATE messages.message_archive SET headers = jsonb_build_object('h', repeat('x', 70000)) WHERE id = %s",
        [large],
    )
    ids += [often, before, large, queue.publish(key="l"), queue.publish("keeps", key="m"), 4711]

    would = outcomes(queue, "preview_redrive", ids)

    kinds = ("redriven", "keyless", "superseded", "too_often", "too_large", "redriven_before", "not_dead")
    assert set(would.values()) == set(kinds)
    assert outcomes(queue, "redrive", ids) == would


def test_it_changes_nothing(queue: Queue) -> None:
    queue.policy(dead_letter=True)
    died = die(queue)
    before = queue.row(TABLES)

    assert outcomes(queue, "preview_redrive", [died]) == {died: "redriven"}
    assert queue.row(TABLES) == before
    assert copy_of(queue, died) is not None


def test_the_key_counts_in_the_target_topic(queue: Queue) -> None:
    died = die(queue, key="k")
    queue.publish("other", key="k")

    assert outcomes(queue, "preview_redrive", [died]) == {died: "redriven"}
    assert outcomes(queue, "preview_redrive", [died], "other") == {died: "superseded"}


def test_force_ignores_the_bound(queue: Queue) -> None:
    died = die(queue)
    queue.conn.execute("UPDATE messages.message_archive SET redrives = 99 WHERE id = %s", [died])

    assert outcomes(queue, "preview_redrive", [died]) == {died: "too_often"}
    assert outcomes(queue, "preview_redrive", [died], None, True) == {died: "redriven"}


def test_a_successor_with_the_key_of_the_dead_message_does_not_prevent_its_redrive(queue: Queue) -> None:
    older, newer = die(queue, key="k"), die(queue, key="k")
    last = queue.send(after=[newer], key="k").id

    would = outcomes(queue, "preview_redrive", [older, newer])

    assert would == {older: "superseded", newer: "keyless"}
    assert outcomes(queue, "redrive", [older, newer]) == would
    assert [row.state for row in queue.rows("SELECT state FROM messages.workflow(%s)", [last])] == ["ready"]
