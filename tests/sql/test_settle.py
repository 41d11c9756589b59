"""messages.settle: ends messages with one result, for complete, reject, fail and retry. (The fence: test_archive.py.)"""

from __future__ import annotations

import pytest
from psycopg.types.json import Jsonb

from tests.sql.queue import Queue


@pytest.mark.parametrize("result", ["success", "rejected", "failed", "lock_expired", "cancelled"])
def test_messages_end_with_the_given_result_and_their_own_values(queue: Queue, result: str) -> None:
    first, second = queue.publish_many(2)
    claims = [each.claim_id for each in queue.claim()]

    lost = queue.call("settle", [first, second], claims, result, ["why", None], [None, Jsonb(2)])

    ended = [queue.archived(each) for each in (first, second)]
    assert (lost, [each.result for each in ended]) == ([], [result] * 2)
    assert [(each.error, each.output) for each in ended] == [("why", None), (None, 2)]


def test_lost_messages_are_returned_and_unchanged(queue: Queue) -> None:
    own, other = queue.publish_many(2)
    claims = {each.id: each.claim_id for each in queue.claim()}

    lost = queue.call("settle", [own, other], [claims[own], claims[other] + 1], "success")

    assert (lost, queue.archived(other), queue.message(other).claim_id) == ([other], None, claims[other])
