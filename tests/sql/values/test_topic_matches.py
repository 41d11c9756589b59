"""messages.topic_matches: which topics a pattern matches, in SQL and in Python."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pgrouse.values import topic_pattern
from tests.sql.queue import Queue

# Few levels, so that patterns and topics often have some in common.
LEVEL = st.sampled_from(["a", "b", "a-b", "dlq", ""])
TOPIC = st.lists(LEVEL, min_size=1, max_size=4).map(".".join).filter(lambda name: name[:1].isalnum())
PATTERN = st.one_of(
    TOPIC,
    st.builds("{}.{}".format, TOPIC, st.sampled_from(["*", "**"])),
    st.sampled_from(["*", "**", "a*", "a.b*", "%", "a_b", "(", "\\", "a**"]),
)


@pytest.mark.parametrize(
    ("pattern", "topic", "matches"),
    [
        ("orders.*", "orders.paid", True),
        ("orders.*", "orders", False),
        ("orders.*", "orders.eu.paid", False),
        ("orders.*", "ordersx.paid", False),
        ("orders.**", "orders.paid", True),
        ("orders.**", "orders.eu.paid", True),
        ("orders.**", "orders", False),
        ("orders.**", "orders.paid.dlq", False),
        ("orders.*", "orders.dlq", False),
        ("**", "orders", True),
        ("**", "orders.dlq", False),
        ("orders.paid", "orders.paid", True),
        ("orders.paid", "ordersXpaid", False),
        ("*", "orders.dlq", True),
        ("ord*", "orders.eu.paid", True),
        ("ord*", "xord", False),
        ("ord**", "ord", False),
    ],
)
def test_a_star_is_one_level_and_two_are_any_number_of_them(
    queue: Queue, pattern: str, topic: str, *, matches: bool
) -> None:
    assert queue.call("topic_matches", pattern, topic) is matches
    assert topic_pattern.matches(pattern, topic) is matches


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pattern=PATTERN, topic=TOPIC)
def test_python_and_sql_have_one_definition(queue: Queue, pattern: str, topic: str) -> None:
    row = queue.row(
        "SELECT messages.topic_matches(%s, %s) AS matches, messages.patterns_of(%s) AS patterns,"
        " messages.patterns_of(%s) AS covering",
        [pattern, topic, topic, pattern],
    )

    assert row.matches is topic_pattern.matches(pattern, topic)
    assert row.patterns == topic_pattern.patterns_of(topic)
    assert row.covering == topic_pattern.patterns_of(pattern)
    if pattern == "**" or pattern.endswith((".*", ".**")):
        assert row.matches is (pattern in row.patterns)
