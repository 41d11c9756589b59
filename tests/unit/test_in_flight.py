"""The hand: what a worker holds, from the claim until the settle has arrived."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pgrouse.worker.in_flight import Hand
from pgrouse.client.message import Message

Claimed = Callable[..., Message]


@pytest.fixture
def hand() -> Hand:
    return Hand()


def test_it_holds_a_message_under_its_claim_and_under_no_other(hand: Hand, claimed: Claimed) -> None:
    first = claimed(claim_id=1)
    again = first._replace(claim_id=2)
    hand.add([first], 0)

    hand.add([again], 0)

    assert (hand.holds(first), hand.holds(again)) == (False, True)
    hand.let_go([first])
    assert hand.find(first.id) == again


def test_what_was_given_up_is_not_held_but_still_known_until_it_is_claimed_again(hand: Hand, claimed: Claimed) -> None:
    message, other = claimed(), claimed()
    hand.add([message, other], 0)

    hand.give_up(message)

    assert not hand.holds(message)
    assert len(hand) == 1
    assert [held.message for held in hand.snapshot()] == [other]
    assert sorted(hand.ids()) == [message.id, other.id]
    hand.add([message], 0)
    hand.let_go([message])
    assert hand.ids() == [other.id]
