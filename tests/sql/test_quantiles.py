"""messages.quantiles: several quantiles at once."""

from __future__ import annotations

from tests.sql.queue import Queue

SEVERAL = "SELECT messages.quantiles(%s::bigint[], '{0,0.1,0.5,0.95,0.99,1}')"
SINGLE = "SELECT ARRAY(SELECT messages.quantile(%s::bigint[], q) FROM unnest('{0,0.1,0.5,0.95,0.99,1}'::float8[]) AS q)"


def test_they_agree_with_quantile(queue: Queue) -> None:
    counts = [0, 0, 10, 20, 0, 5, 3, *[0] * 33, 1]

    assert queue.value(SEVERAL, [counts]) == queue.value(SINGLE, [counts])
    assert len(set(queue.value(SEVERAL, [counts]))) == 6


def test_an_empty_histogram_has_none(queue: Queue) -> None:
    assert queue.value(SEVERAL, [[0, 0]]) is None
