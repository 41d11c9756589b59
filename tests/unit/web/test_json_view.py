"""The layout of JSON on the page of a message."""

from __future__ import annotations

import pytest

from pgrouse.web.page.json_view import pretty


def test_each_value_is_on_its_own_line() -> None:
    assert pretty('{"a": [1, {}], "b": "x"}', 1000) == ('{\n  "a": [\n    1,\n    {}\n  ],\n  "b": "x"\n}', False)


@pytest.mark.parametrize("cut", ['{"a": "be', '["one", "tw\\', '"' + '\\"' * 7])
def test_a_truncated_string_is_shown_as_far_as_it_exists(cut: str) -> None:
    shown, _ = pretty(cut, 1000)

    assert "".join(shown.split()) == "".join(cut.split())


def test_a_truncated_string_full_of_quotes_is_read_once() -> None:
    """An algorithm that starts again at each quote would take an hour."""
    shown, is_cut = pretty('"' + '\\"' * 500_000, 100_000)

    assert (len(shown), is_cut) == (100_000, True)
