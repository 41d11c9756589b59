"""How JSON is laid out on the page of a message."""

from __future__ import annotations

import pytest

from pgrouse.web.json_view import pretty


def test_each_value_stands_on_a_line_of_its_own() -> None:
    assert pretty('{"a": [1, {}], "b": "x"}', 1000) == ('{\n  "a": [\n    1,\n    {}\n  ],\n  "b": "x"\n}', False)


@pytest.mark.parametrize("cut", ['{"a": "be', '["one", "tw\\', '"' + '\\"' * 7])
def test_a_string_that_was_cut_is_shown_as_far_as_it_is_there(cut: str) -> None:
    shown, _ = pretty(cut, 1000)

    assert "".join(shown.split()) == "".join(cut.split())


def test_a_cut_string_full_of_quotes_is_read_once() -> None:
    """Begun again at each quote, this one would take an hour."""
    shown, is_cut = pretty('"' + '\\"' * 500_000, 100_000)

    assert (len(shown), is_cut) == (100_000, True)
