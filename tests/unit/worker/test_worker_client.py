"""How a worker combines several claims of one turn."""

from __future__ import annotations

import pytest

from pgrouse.client.calls.processing.claim import claim_with_next_due
from pgrouse.client.message import Message
from pgrouse.client.processing.worker_client import TurnResult

NO_MESSAGE = (None,) * len(Message._fields)


@pytest.mark.parametrize(
    ("lefts", "held_back", "next_due_s"),
    [
        ([(None, None)], False, None),
        ([(None, 3.5)], False, 3.5),
        ([('{"topic a": null}', None), (None, 2.0)], True, 2.0),
        ([(None, 1.0), ('{"channels b": null}', 2.0)], True, 1.0),
        ([(None, 0.0), (None, None)], False, 0.0),
    ],
)
def test_the_claims_of_one_turn_are_combined(
    lefts: list[tuple[str | None, float | None]], held_back: bool, next_due_s: float | None
) -> None:
    result = TurnResult()

    for oldest_xid, left in enumerate(lefts, start=7):
        result.add_claim(claim_with_next_due("w", ["t"], 1).read([(*NO_MESSAGE, *left, oldest_xid)]))

    assert (result.claimed, result.held_back, result.next_due_s) == ([], held_back, next_due_s)
    assert result.oldest_xid == 7  # that of the claim which began first
