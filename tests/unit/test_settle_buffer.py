"""The settler: what ended and is not settled yet, and what became of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from structlog.testing import LogCapture

from pgrouse.client.message import Message
from pgrouse.handlers.outcome import Ended, Kind
from pgrouse.worker.settle_buffer import Settler
from pgrouse.worker.wake_event import Signals

Claimed = Callable[..., Message]


@pytest.fixture
def settler() -> Settler:
    return Settler(Signals())


@pytest.fixture
def ended(claimed: Claimed) -> Callable[[], Ended]:
    return lambda: Ended(claimed(), Kind.COMPLETE)


def test_it_hands_out_everything_that_waits_once(settler: Settler, ended: Callable[[], Ended]) -> None:
    first, second = ended(), ended()
    settler.add(first)
    settler.add(second)

    assert settler.take() == [first, second]
    assert settler.take() == []


def test_it_is_idle_when_nothing_waits_and_nothing_is_on_its_way(settler: Settler, ended: Callable[[], Ended]) -> None:
    assert settler.idle
    settler.add(ended())
    assert not settler.idle

    taken = settler.take()
    assert not settler.idle
    settler.done(taken, [])

    assert settler.idle
    assert (settler.settled, settler.counts[Kind.COMPLETE]) == (1, 1)


def test_what_could_not_be_flushed_goes_first_next_time(settler: Settler, ended: Callable[[], Ended]) -> None:
    first, second = ended(), ended()
    settler.add(first)
    taken = settler.take()
    settler.add(second)

    settler.put_back(taken)

    assert not settler.idle
    assert settler.settled == 0
    assert settler.take() == [first, second]


def test_two_flushes_at_once_are_counted_apart(settler: Settler, ended: Callable[[], Ended]) -> None:
    settler.add(ended())
    first = settler.take()
    settler.add(ended())
    second = settler.take()

    settler.done(first, [])
    assert not settler.idle
    settler.put_back(second)
    settler.done(settler.take(), [])

    assert settler.idle
    assert settler.settled == 2


def test_a_lost_lock_is_counted_and_said(settler: Settler, ended: Callable[[], Ended], logged: LogCapture) -> None:
    fine, lost = ended(), ended()
    settler.add(fine)
    settler.add(lost)

    settler.done(settler.take(), [lost.message.id])

    assert settler.lost == 1
    assert [(e["event"], e["message_id"], e["settled_as"]) for e in logged.entries] == [
        ("message.lock_lost", lost.message.id, "complete")
    ]


@pytest.mark.parametrize("act", ["add", "put_back", "done"])
async def test_whoever_waits_is_woken_by_all_that_happens(ended: Callable[[], Ended], act: str) -> None:
    signals = Signals()
    settler, waiter = Settler(signals), signals.new()
    settler.add(ended())
    taken = settler.take()
    await waiter.wait(0)

    match act:
        case "add":
            settler.add(ended())
        case "put_back":
            settler.put_back(taken)
        case "done":
            settler.done(taken, [])

    assert await waiter.wait(0)
