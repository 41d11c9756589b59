"""messages.wants_alert: whether the rules of a sink want an alert."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.sql.queue import Queue
from tests.sql.sinks import raise_alert


@pytest.mark.parametrize(
    ("rules", "columns", "wanted"),
    [
        ({}, {}, True),
        ({"on": ["failed"]}, {}, True),
        ({"on": ["failed"]}, {"result": "expired"}, False),
        ({"on": ["dead_message"]}, {"result": "expired"}, True),
        ({"on": ["dead_message"]}, {"kind": "backlog", "result": "begun"}, False),
        ({"on": ["failed"]}, {"kind": "breaker", "result": "failed"}, False),
        ({"topics": ["a", "t*"]}, {}, True),
        ({"topics": ["a"]}, {}, False),
        ({"topics": ["t*"]}, {"kind": "cron_late", "topic": None}, False),
        ({"topics": ["*"]}, {"kind": "cron_late", "topic": None}, True),
        ({"topics": ["t"], "on": ["expired"]}, {}, False),
    ],
)
def test_it_is_wanted_if_both_its_kind_and_its_topic_are(
    queue: Queue, rules: dict[str, Any], columns: dict[str, Any], wanted: bool
) -> None:
    alert = raise_alert(queue, **columns)

    found = queue.value(
        "SELECT messages.wants_alert(a, %s) FROM messages.alert AS a WHERE a.id = %s", [Jsonb(rules), alert]
    )

    assert found is wanted
