"""SettleBuffer: results that are not settled yet, and what happened to them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from structlog.testing import LogCapture

from pgrouse.client.message import Message
from pgrouse.client.settlement import SettleKind, Settlement
from pgrouse.process.wake_event import WakeEvents
from pgrouse.worker.execution.settle_buffer import SettleBuffer

Claimed = Callable[..., Message]


@pytest.fixture
def settle_buffer() -> SettleBuffer:
    return SettleBuffer(WakeEvents())


@pytest.fixture
def ended(claimed: Claimed) -> Callable[[], Settlement]:
    return lambda: Settlement(claimed(), SettleKind.COMPLETE)


def test_a_buffer_is_idle_when_nothing_waits_and_nothing_is_being_sent(
    settle_buffer: SettleBuffer, ended: Callable[[], Settlement]
) -> None:
    assert settle_buffer.is_idle
    settle_buffer.add([ended()])
    assert not settle_buffer.is_idle

    taken = settle_buffer.take()
    assert not settle_buffer.is_idle
    settle_buffer.done(taken, [])

    assert settle_buffer.is_idle
    assert (settle_buffer.settled_count, settle_buffer.counts[SettleKind.COMPLETE]) == (1, 1)


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


def test_two_concurrent_flushes_are_counted_separately(
    settle_buffer: SettleBuffer, ended: Callable[[], Settlement]
) -> None:
    settle_buffer.add([ended()])
    first = settle_buffer.take()
    settle_buffer.add([ended()])
    second = settle_buffer.take()

    settle_buffer.done(first, [])
    assert not settle_buffer.is_idle
    settle_buffer.put_back(second)
    settle_buffer.done(settle_buffer.take(), [])

    assert settle_buffer.is_idle
    assert settle_buffer.settled_count == 2


def test_a_lost_lock_is_counted_and_logged(
    settle_buffer: SettleBuffer, ended: Callable[[], Settlement], logged: LogCapture
) -> None:
    fine, lost = ended(), ended()
    settle_buffer.add([fine])
    settle_buffer.add([lost])

    settle_buffer.done(settle_buffer.take(), [lost.message.id])

    assert settle_buffer.lost_count == 1
    assert [(e["event"], e["message_id"], e["settled_as"]) for e in logged.entries] == [
        ("message.lock_lost", lost.message.id, "complete")
    ]


@pytest.mark.parametrize("act", ["add", "put_back", "done"])
async def test_every_change_wakes_the_waiters(ended: Callable[[], Settlement], act: str) -> None:
    wake_events = WakeEvents()
    settle_buffer, waiter = SettleBuffer(wake_events), wake_events.new()
    settle_buffer.add([ended()])
    taken = settle_buffer.take()
    await waiter.wait(0)

    match act:
        case "add":
            settle_buffer.add([ended()])
        case "put_back":
            settle_buffer.put_back(taken)
        case "done":
            settle_buffer.done(taken, [])

    assert await waiter.wait(0)
