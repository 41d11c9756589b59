"""messages.always_topic_bits: which topics have notify = 'always', as bits of a sequence.

How bits are set and cleared: test_policy_bits.py.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.server.postgres import Database
from tests.sql.queue import Listener, Queue

pytestmark = pytest.mark.every_server

ALL = 2**63 - 1
MARKED = "SELECT pg_sequence_last_value('messages.always_topic_bits')"


@pytest.fixture(autouse=True)
def bits_cleared(queue: Queue) -> None:
    queue.value("SELECT setval('messages.always_topic_bits', 1)")


def test_each_topic_with_notify_always_sets_its_bit_at_once(queue: Queue) -> None:
    one = {topic: queue.call("policy_topic_bit", topic) for topic in ("a", "b")}

    queue.policy("a", notify="always")
    queue.policy("b", notify="always")

    assert one["a"] != one["b"]
    assert queue.call("always_topic_bits") == queue.value(MARKED) == 1 | one["a"] | one["b"]


def test_notify_always_as_the_default_sets_every_bit(queue: Queue) -> None:
    queue.policy("*", notify="always")

    assert queue.value(MARKED) == ALL


@pytest.mark.parametrize("name", ["a", "orders.created", "Z9", "x" * 200, "a:b_c-d"])
def test_a_publish_notifies_whatever_the_name_of_the_topic(
    queue: Queue, listen: Callable[..., Listener], name: str
) -> None:
    """Setting and reading a bit agree for any name."""
    listener = listen("new_message")
    queue.policy(name, notify="always")

    published = queue.publish(name)

    assert listener.received() == [str(published)]


def test_a_publish_to_a_topic_with_the_same_bit_sends_nothing(queue: Queue, listen: Callable[..., Listener]) -> None:
    listener = listen("new_message")
    queue.policy("a", notify="always")
    same = queue.value(
        """
        SELECT 't' || n FROM generate_series(1, 10000) AS n
        WHERE messages.policy_topic_bit('t' || n) = messages.policy_topic_bit('a') LIMIT 1
        """
    )

    queue.publish(same)

    assert listener.received() == []


def test_after_a_restart_of_the_sequence_every_publish_looks_at_the_policies(
    own_queue: Queue, own_database: Database
) -> None:
    own_queue.policy("a", notify="always")
    own_queue.conn.execute("ALTER SEQUENCE messages.always_topic_bits RESTART")
    listener = Listener(own_database.connect(), "new_message")

    published = own_queue.publish("a")
    own_queue.publish("b")

    assert listener.received() == [str(published)]
