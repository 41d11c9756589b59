"""messages.notify: sends notifications. While the notification queue is full: security/test_notify_queue.py."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.sql.queue import Listener, Queue

pytestmark = pytest.mark.every_server


def test_each_payload_is_sent_and_the_result_says_so(queue: Queue, listen: Callable[..., Listener]) -> None:
    listener = listen("a")

    assert queue.call("notify", "a", ["x", "y", ""]) is True

    assert sorted(listener.received()) == ["", "x", "y"]


@pytest.mark.parametrize("payloads", [[], None])
def test_without_a_payload_nothing_is_sent(
    queue: Queue, listen: Callable[..., Listener], payloads: list[str] | None
) -> None:
    listener = listen("a")

    assert queue.value("SELECT messages.notify('a', %s::text[])", [payloads]) is True

    assert listener.received() == []
