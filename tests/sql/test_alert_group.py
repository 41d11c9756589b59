"""messages.alert_group and messages.wants_alert: which group an alert belongs to."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.sql.queue import Queue
from tests.sql.sinks import raise_alert

ALL = ["topic", "result", "fingerprint"]


def group(queue: Queue, by: list[str], **columns: Any) -> str:
    alert = raise_alert(queue, **columns)
    found: str = queue.value(
        "SELECT messages.alert_group(a, %s) FROM messages.alert AS a WHERE a.id = %s", [Jsonb({"group_by": by}), alert]
    )
    return found


@pytest.mark.parametrize("differs", [{"topic": "u"}, {"result": "expired"}, {"error_fingerprint": "0"}])
def test_dead_messages_that_differ_in_a_grouping_column_are_in_different_groups(
    queue: Queue, differs: dict[str, str]
) -> None:
    (name,) = differs
    without = [each for each in ALL if each not in name]

    assert group(queue, ALL) != group(queue, ALL, **differs)
    assert group(queue, without) == group(queue, without, **differs)


def test_begin_and_end_of_a_condition_are_one_group_and_its_topics_are_separate_groups(queue: Queue) -> None:
    begun = group(queue, [], kind="backlog", result="begun")

    assert group(queue, [], kind="backlog", result="ended") == begun
    assert group(queue, [], kind="backlog", result="begun", topic="u") != begun
    assert group(queue, [], kind="no_worker", result="begun") != begun
