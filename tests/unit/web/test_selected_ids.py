"""The ids that a form of the dashboard sends: each is a number of a message or refused."""

from __future__ import annotations

import pytest

from pgrouse.web.http.problem import Problem
from pgrouse.web.pages.messages.bulk_action import _ids


@pytest.mark.parametrize("text", ["0" * 25 + "9" * 5000, "9" * 5000, str(2**63), "-1", "1.5", "x", "٣", "1e3", "0x1"])
def test_an_invalid_id_is_refused(text: str) -> None:
    with pytest.raises(Problem) as refused:
        _ids([text])

    assert (refused.value.status, refused.value.code) == (422, "invalid_id")


@pytest.mark.parametrize(
    ("text", "ids"), [("1,2", [1, 2]), (" 7 ", [7]), ("0" * 5000 + "7", [7]), ("0", [0]), (str(2**63 - 1), [2**63 - 1])]
)
def test_ids_are_read_as_numbers(text: str, ids: list[int]) -> None:
    assert _ids([text]) == ids
