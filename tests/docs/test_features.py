"""docs/development/promises.md has every promise, and every test that it names exists."""

from __future__ import annotations

from tests.docs.named_tests import is_long, is_there, named
from tests.docs.page import Page

PAGE = Page("docs/development/promises.md")
ROWS = PAGE.rows()
# Kills a whole Spark, half a minute each time; the other tests of this row run for each change.
NIGHTLY = ["pipeline/claim/test_consume_job.py::test_a_kill_during_a_batch_releases_its_messages_with_their_attempts"]


def test_every_feature_has_one_line_in_its_order() -> None:
    expected = [f"S{n}" for n in range(1, 50)] + [f"N{n}" for n in range(1, 47)]

    assert [row[0] for row in ROWS] == expected


def test_every_feature_names_a_test_or_is_marked_not_yet() -> None:
    silent = [row[0] for row in ROWS if not (named(row[3]) or row[3] == "not yet")]

    assert silent == []


def test_every_named_test_exists() -> None:
    missing = [f"{row[0]}: {name}" for row in ROWS for name in named(row[3]) if not is_there(name)]

    assert missing == []


def test_every_feature_is_shown_by_what_runs_for_each_change() -> None:
    names = [name for row in ROWS for name in named(row[3]) if is_there(name)]

    assert [name for name in names if is_long(name)] == NIGHTLY
