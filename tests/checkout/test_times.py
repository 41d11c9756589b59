"""The table of where the time of the tests goes."""

from __future__ import annotations

import json

from tests import times


def test_folders_and_tests_that_take_longest_come_first_with_all_their_phases() -> None:
    phases = [
        ("tests/unit/test_a.py::test_one", "setup", 1.0),
        ("tests/unit/test_a.py::test_one", "call", 2.0),
        ("tests/daemon/test_b.py::test_two", "call", 9.0),
    ]

    folders, _, slowest = times.table(map(json.dumps, phases)).partition("\n\n")

    assert [line.split() for line in folders.splitlines()] == [
        ["folder", "tests", "seconds", "share"],
        ["tests/daemon", "1", "9", "75%"],
        ["tests/unit", "1", "3", "25%"],
    ]
    assert [line.split()[0] for line in slowest.splitlines()[1:]] == ["9.0", "3.0"]
