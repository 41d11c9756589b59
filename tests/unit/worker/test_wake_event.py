"""WakeEvent: an event that wakes its waiters."""

from __future__ import annotations

from pgrouse.process.wake_event import WakeEvent, WakeEvents


async def test_an_event_set_without_a_waiter_is_kept_for_the_next_one_only() -> None:
    signal = WakeEvent()
    signal.set()
    signal.set()

    assert await signal.wait(60)
    assert not await signal.wait(0.01)


async def test_set_wakes_each_of_several_waiters() -> None:
    signals = WakeEvents()
    first, second = signals.new(), signals.new()

    signals.set()
    assert await first.wait(0)
    signals.set()

    assert await first.wait(0)
    assert await second.wait(0)
    assert not await second.wait(0.01)
