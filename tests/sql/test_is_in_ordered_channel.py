"""messages.is_in_ordered_channel: whether a channel waits for this message."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue


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
def test_the_topics_word_counts_before_the_default_and_only_in_a_channel(
    queue: Queue, topic: bool | None, default: bool, channel: str | None, expected: bool
) -> None:
    queue.policy("*", ordered=default)
    queue.policy(ordered=topic)
    published = queue.publish(channel=channel)

    assert queue.call("is_in_ordered_channel", published) is expected
