"""messages.redrive_rows: what all ways to redrive share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.sql.deaths import copy_of, die, outcomes
from tests.sql.queue import Background, Queue


def test_ids_are_drawn_in_the_order_in_which_the_messages_died(queue: Queue) -> None:
    died = [die(queue) for _ in range(30)]

    queue.rows("SELECT * FROM messages.redrive_rows(%s, NULL, NULL, NULL, false)", [died[::-1]])

    assert [row.redriven_from for row in queue.rows("SELECT redriven_from FROM messages.message ORDER BY id")] == died


def test_two_calls_with_the_same_keys_in_opposite_order_do_not_deadlock(
    queue: Queue, other: Queue, third: Queue, background: Background, eventually: Callable[..., Any]
) -> None:
    """Both stop in the middle, at a key that another session holds."""
    abc = [die(queue, key=key) for key in ("a", "middle", "z")]
    cba = [die(queue, key=key) for key in ("z", "middle", "a")]

    with third.conn.transaction(force_rollback=True):
        third.publish(key="middle")
        first = background.start(outcomes, queue, "redrive", abc)
        eventually(lambda: background.is_blocked(queue))
        second = background.start(outcomes, other, "redrive", cba)
        eventually(lambda: background.is_blocked(other))

    assert set(first.result(timeout=60).values()) == {"redriven"}
    assert set(second.result(timeout=60).values()) == {"superseded"}


def test_a_copy_replaces_an_original_that_has_left_the_archive(queue: Queue) -> None:
    queue.policy(dead_letter=True)
    died = die(queue, payload={"n": 1}, channel="c", key="k")
    copy = copy_of(queue, died)
    queue.conn.execute("DELETE FROM messages.message_archive")

    redriven = outcomes(queue, "redrive", [died])

    assert redriven == {died: "redriven"}
    (new,) = queue.rows("SELECT * FROM messages.message")
    assert (new.topic, new.payload, new.channel, new.redriven_from, new.dlq_moved_at) == (
        "t",
        {"n": 1},
        "c",
        died,
        None,
    )
    assert queue.archived(copy.id).result == "cancelled"


def test_a_thousand_messages_take_one_call_and_less_than_minutes(queue: Queue) -> None:
    queue.publish_many(1000)
    claimed = queue.claim(limit=1000)
    queue.settle("fail", claimed, ["boom"] * 1000)
    queue.conn.execute("SET statement_timeout = '30s'")

    redriven = outcomes(queue, "redrive", [c.id for c in claimed])

    assert set(redriven.values()) == {"redriven"}
    assert len(queue.ids()) == 1000


# messages.merge_patch: the examples of RFC 7396, appendix A.


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_it_merges_as_the_rfc_says(queue: Queue, target: Any, patch: Any, result: Any) -> None:
    assert queue.call("merge_patch", Jsonb(target), Jsonb(patch)) == result


def test_a_patch_of_null_is_merged_as_into_an_empty_object(queue: Queue) -> None:
    assert queue.call("merge_patch", None, Jsonb({"a": {"b": None}})) == {"a": {}}


# messages.transfer_to_redriven: a redriven message takes over the steps and successors of its ancestor.


def die_with_a_step(queue: Queue) -> int:
    queue.publish()
    (claimed,) = queue.claim()
    queue.value("SELECT messages.save_step(%s, %s, 'charge', '{\"n\": 1}')", [claimed.id, claimed.claim_id])
    queue.settle("fail", [claimed], ["boom"])
    died: int = claimed.id
    return died


@pytest.mark.parametrize(
    ("how", "topic", "comes_along"),
    [
        ("messages.redrive(ARRAY[%s::bigint])", "t", True),
        ("messages.redrive_edited(%s, '2')", "t", True),
        ("messages.redrive_edited(%s, p_topic => 'other')", "other", False),
    ],
    ids=["as it was", "edited", "to another topic"],
)
def test_its_steps_are_transferred_unless_another_handler_runs_it(
    queue: Queue, how: str, topic: str, comes_along: bool
) -> None:
    died = die_with_a_step(queue)

    again = queue.row(f"SELECT * FROM {how}", [died]).message_id
    (claimed,) = queue.claim(topic)
    kept: list[Any] = queue.rows("SELECT * FROM messages.load_steps(%s, %s)", [again, claimed.claim_id])

    assert [tuple(row) for row in kept] == [("charge", '{"n": 1}') if comes_along else (None, None)]


def test_a_redrive_that_is_rolled_back_transfers_nothing(queue: Queue) -> None:
    first = queue.publish()
    last = queue.send(after=[first]).id
    queue.settle("fail", queue.claim(), ["boom"])

    queue.conn.execute("BEGIN")
    queue.rows("SELECT * FROM messages.redrive(%s)", [[first]])
    queue.conn.execute("ROLLBACK")

    assert [row.id for row in queue.rows("SELECT id FROM messages.workflow(%s)", [last])] == [first]
