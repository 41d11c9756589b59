"""messages.try_return_attempts: one try to return attempts. (What return_attempts guarantees: test_return_attempts.py.)"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from psycopg import errors

from tests.sql.queue import Background, Queue


def give_back(queue: Queue, claimed: Any) -> list[int]:
    ended: list[int] = queue.call("try_return_attempts", [claimed.id], [claimed.claim_id], None, None, None, None)
    return ended


def test_a_message_of_the_same_key_that_commits_in_the_meantime_fails_the_try(
    queue: Queue, other: Queue, background: Background, eventually: Callable[..., Any]
) -> None:
    queue.publish(key="k")
    claimed = queue.claim_one()

    with other.conn.transaction():
        other.publish(key="k")
        giving = background.start(give_back, queue, claimed)
        eventually(lambda: background.is_blocked(queue))

    with pytest.raises(errors.UniqueViolation, match="message_key"):
        giving.result(timeout=60)


def test_the_ids_of_unlocked_messages_are_returned(queue: Queue) -> None:
    published = queue.publish()
    claimed = queue.claim_one()

    assert give_back(queue, claimed) == [published]
    assert give_back(queue, claimed) == []


# messages.is_in_ordered_channel: whether a channel waits for this message.


@pytest.mark.parametrize(
    ("topic", "default", "channel", "expected"),
    [
        (True, False, "c", True),
        (True, False, None, False),
        (None, True, "c", True),
        (False, True, "c", False),
        (None, False, "c", False),
    ],
)
def test_the_topics_own_value_wins_over_the_default_and_only_in_a_channel(
    queue: Queue, topic: bool | None, default: bool, channel: str | None, expected: bool
) -> None:
    queue.policy("*", ordered=default)
    queue.policy(ordered=topic)
    published = queue.publish(channel=channel)

    assert queue.call("is_in_ordered_channel", published) is expected
