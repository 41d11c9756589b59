"""pgrouse.web.charts.grouped_charts: bars of several lines next to each other."""

from __future__ import annotations

import pytest

pytest.importorskip("fastapi")

from pgrouse.web.charts.result_charts import same_bars


def test_a_bar_that_begins_between_two_reads_moves_no_other() -> None:
    first = [{"at": at, "success": 1} for at in (0, 1, 2)]
    later = [{"at": at, "success": 10} for at in (1, 2, 3)]

    bars = same_bars([first, later])

    assert [[bar["at"] for bar in each] for each in bars] == [[1, 1], [2, 2]]
    assert [sum(bar["success"] for bar in each) for each in bars] == [11, 11]


def test_without_topics_there_are_no_bars() -> None:
    assert same_bars([]) == []
