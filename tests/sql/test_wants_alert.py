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
        ({"kinds": ["failed"]}, {}, True),
        ({"kinds": ["failed"]}, {"result": "expired"}, False),
        ({"kinds": ["dead_message"]}, {"result": "expired"}, True),
        ({"kinds": ["dead_message"]}, {"kind": "backlog", "result": "begun"}, False),
        ({"kinds": ["failed"]}, {"kind": "breaker", "result": "failed"}, False),
        ({"topics": ["a", "t*"]}, {}, True),
        ({"topics": ["a"]}, {}, False),
        ({"topics": ["t*"]}, {"kind": "cron_late", "topic": None}, False),
        ({"topics": ["*"]}, {"kind": "cron_late", "topic": None}, True),
        ({"topics": ["t"], "kinds": ["expired"]}, {}, False),
    ],
)
def test_an_alert_is_wanted_if_both_its_kind_and_its_topic_are(
    queue: Queue, rules: dict[str, Any], columns: dict[str, Any], wanted: bool
) -> None:
    alert = raise_alert(queue, **columns)

    found = queue.value(
        "SELECT messages.wants_alert(a, %s) FROM messages.alert AS a WHERE a.id = %s", [Jsonb(rules), alert]
    )

    assert found is wanted
