"""WakeEvent: something happened, look again."""

from __future__ import annotations

import asyncio

from pgrouse.process.wake_event import WakeEvent, WakeEvents


async def test_it_wakes_whoever_waits() -> None:
    signal = WakeEvent()
    waiter = asyncio.create_task(signal.wait(60))
    await asyncio.sleep(0)

    signal.set()

    assert await waiter


async def test_one_that_nobody_waited_for_is_kept_for_the_next_and_only_for_him() -> None:
    signal = WakeEvent()
    signal.set()
    signal.set()

    assert await signal.wait(60)
    assert not await signal.wait(0.01)


async def test_a_wait_ends_when_its_time_is_over() -> None:
    assert not await WakeEvent().wait(0.01)


async def test_a_wait_of_no_time_still_takes_what_is_there() -> None:
    signal = WakeEvent()
    signal.set()

    assert await signal.wait(0)


async def test_each_of_several_waiters_is_woken_and_misses_nothing() -> None:
    signals = WakeEvents()
    first, second = signals.new(), signals.new()

    signals.set()
    assert await first.wait(0)
    signals.set()

    assert await first.wait(0)
    assert await second.wait(0)
    assert not await second.wait(0.01)
