"""SettleBuffer: results that are not settled yet, and what happened to them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pgrouse.client.message import Message
from pgrouse.client.processing.settlement import SettleKind, Settlement
from pgrouse.process.wake_event import WakeEvents
from pgrouse.worker.execution.settle_buffer import SettleBuffer

Claimed = Callable[..., Message]


@pytest.fixture
def settle_buffer() -> SettleBuffer:
    return SettleBuffer(WakeEvents())


@pytest.fixture
def ended(claimed: Claimed) -> Callable[[], Settlement]:
    return lambda: Settlement(claimed(), SettleKind.COMPLETE)


def test_results_that_could_not_be_flushed_are_first_next_time(
    settle_buffer: SettleBuffer, ended: Callable[[], Settlement]
) -> None:
    first, second = ended(), ended()
    settle_buffer.add([first])
    taken = settle_buffer.take()
    settle_buffer.add([second])

    settle_buffer.put_back(taken)

    assert not settle_buffer.is_idle
    assert settle_buffer.settled_count == 0
    assert settle_buffer.take() == [first, second]
