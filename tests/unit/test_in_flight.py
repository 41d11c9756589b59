"""InFlight: the messages of a worker, from the claim until the settle has arrived."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pgrouse.client.message import Message
from pgrouse.worker.execution.in_flight import InFlight

Claimed = Callable[..., Message]


@pytest.fixture
def in_flight() -> InFlight:
    return InFlight()


def test_a_message_is_held_under_its_claim_only(in_flight: InFlight, claimed: Claimed) -> None:
    first = claimed(claim_id=1)
    again = first._replace(claim_id=2)
    in_flight.add([first], 0)

    in_flight.add([again], 0)

    assert (in_flight.holds(first), in_flight.holds(again)) == (False, True)
    in_flight.remove([first])
    assert in_flight.find(first.id) == again


def test_a_released_message_is_not_held_but_known_until_it_is_claimed_again(
    in_flight: InFlight, claimed: Claimed
) -> None:
    message, other = claimed(), claimed()
    in_flight.add([message, other], 0)

    in_flight.abandon(message)

    assert not in_flight.holds(message)
    assert len(in_flight) == 1
    assert in_flight.snapshot() == [(other, 0)]
    assert sorted(in_flight.ids()) == [message.id, other.id]
    in_flight.add([message], 0)
    in_flight.remove([message])
    assert in_flight.ids() == [other.id]


def test_a_start_is_known_until_its_message_is_removed(in_flight: InFlight, claimed: Claimed) -> None:
    waiting, started = claimed(), claimed()
    in_flight.add([waiting, started], 0)

    in_flight.mark_started([started], 5.0)

    assert (in_flight.started_at(waiting), in_flight.started_at(started)) == (None, 5.0)
    assert in_flight.started_at(started._replace(claim_id=2)) is None
    in_flight.remove([started])
    assert in_flight.started_at(started) is None


def test_a_start_that_is_noted_too_late_is_forgotten(in_flight: InFlight, claimed: Claimed) -> None:
    message = claimed()

    in_flight.mark_started([message], 5.0)

    assert in_flight.started_at(message) is None


@pytest.mark.parametrize(("lock_duration_s", "wakes"), [(60.0, False), (1.0, True)])
def test_only_a_short_lock_wakes_the_heartbeat(
    in_flight: InFlight, claimed: Claimed, lock_duration_s: float, wakes: bool
) -> None:
    in_flight.add([claimed(), claimed(lock_duration_s=lock_duration_s)], 0)

    assert in_flight.wake_heartbeat.is_set() == wakes
