"""messages.unpack_histogram: the counts of a histogram."""

from __future__ import annotations

from psycopg.types.json import Jsonb

from tests.sql.queue import Queue


def test_it_returns_the_packed_counts_one_for_each_bucket(queue: Queue) -> None:
    counts = {str(bucket): bucket * 1_000_000 for bucket in range(1, 49)}

    unpacked = queue.value("SELECT messages.unpack_histogram(messages.pack_histogram(%s))", [Jsonb(counts)])

    assert unpacked == list(counts.values())


def test_sums_have_room_for_a_week_of_the_fullest_minutes(queue: Queue) -> None:
    full = queue.value(
        "SELECT messages.unpack_histogram(messages.pack_histogram(%s) * 999)", [Jsonb({"1": 10**9, "2": 10**9})]
    )

    assert full[:3] == [999 * 10**9, 999 * 10**9, 0]


def test_null_returns_nothing(queue: Queue) -> None:
    assert queue.value("SELECT messages.unpack_histogram(0)") == [0] * 48
    assert queue.value("SELECT messages.unpack_histogram(NULL)") is None
