"""messages.preview_redrive: what a redrive would do, without doing it."""

from __future__ import annotations

from tests.sql.deaths import copy_of, die, outcomes
from tests.sql.queue import Queue

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
    ids += [often, before, queue.publish(key="l"), queue.publish("keeps", key="m"), 4711]

    would = outcomes(queue, "preview_redrive", ids)

    assert set(would.values()) == {"redriven", "keyless", "superseded", "too_often", "redriven_before", "not_dead"}
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
