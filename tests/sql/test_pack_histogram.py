"""messages.pack_histogram: a histogram as one number."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg import errors
from psycopg.types.json import Jsonb

from tests.sql.queue import Queue


def packed(queue: Queue, counts: Any) -> Any:
    return queue.value("SELECT messages.pack_histogram(%s)", [Jsonb(counts)])


def test_numbers_can_be_added_bucket_by_bucket(queue: Queue) -> None:
    both = queue.value(
        "SELECT messages.unpack_histogram(messages.pack_histogram(%s) + messages.pack_histogram(%s))",
        [Jsonb({"1": 3, "48": 1}), Jsonb({"1": 4, "7": 2})],
    )

    assert both == [7, 0, 0, 0, 0, 0, 2, *[0] * 40, 1]


def test_no_counts_are_zero(queue: Queue) -> None:
    assert (packed(queue, {}), queue.value("SELECT messages.pack_histogram(NULL)")) == (0, 0)


@pytest.mark.parametrize("counts", [{"0": 1}, {"49": 1}, {"7": -1}, {"7": 1_000_000_001}])
def test_what_would_spoil_the_buckets_beside_it_is_refused(queue: Queue, counts: dict[str, int]) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="use buckets 1 to 48 and counts from 0 to 1000000000"):
        packed(queue, counts)
