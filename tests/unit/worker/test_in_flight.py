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


def test_a_start_that_is_noted_too_late_is_forgotten(in_flight: InFlight, claimed: Claimed) -> None:
    message = claimed()

    in_flight.mark_started([message], 5.0)

    assert in_flight.started_at(message) is None
