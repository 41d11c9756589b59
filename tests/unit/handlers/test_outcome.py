"""The outcome of a handler, and how it is settled."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

import pgrouse
from pgrouse.client.message import Message
from pgrouse.client.processing.settlement import SettleKind
from pgrouse.handlers.outcome import Defer, Retry, describe, to_settlement
from pgrouse.values.error_line import ERROR_BYTES, to_storable_text

# The folder of pgrouse in tracebacks; the folder of the checkout may have its name.
PACKAGE = str(Path(pgrouse.__file__).parent)
Claimed = Callable[..., Message]


class Colour(enum.Enum):
    RED = "red"


class Receipt(BaseModel):
    number: int
    paid: bool = True


@dataclass
class Point:
    x: int
    y: int


@pytest.fixture
def raised() -> Exception:
    """An error of a handler, with its traceback."""
    with pytest.raises(ZeroDivisionError) as raised:
        fail_deep_down()
    return raised.value


def fail_deep_down(depth: int = 0) -> None:
    if depth == 40:
        raise ZeroDivisionError("deep down")
    fail_deep_down(depth + 1)


class TestKinds:
    @pytest.mark.parametrize(("attempt", "limit", "says"), [(1, 1, "; no attempt follows: max_attempts is 1"),
        (3, 3, "; no attempt follows: max_attempts is 3"), (1, 3, ""), (9, None, "")])  # fmt: skip
    def test_a_retry_that_cannot_follow_says_so(
        self, claimed: Claimed, attempt: int, limit: int | None, says: str
    ) -> None:
        settlement = to_settlement(claimed(attempt=attempt, max_attempts=limit), Retry("0s"))

        assert settlement.error == f"the handler asked for a retry{says}"

    def test_an_omitted_state_is_kept_and_none_clears_it(self, claimed: Claimed) -> None:
        assert to_settlement(claimed(), Retry()).state is None
        assert to_settlement(claimed(), Retry(state=None)).state == "null"
        assert to_settlement(claimed(), Defer(state=None)).state == "null"

    def test_a_state_that_is_not_json_fails_the_attempt_with_the_reason(self, claimed: Claimed) -> None:
        settlement = to_settlement(claimed(), Defer(state=object()))

        assert settlement.kind is SettleKind.RETRY
        assert settlement.error is not None
        assert settlement.error.startswith("the handler's state is not JSON: ")

    def test_defer_until_a_naive_time_raises_at_the_call(self) -> None:
        with pytest.raises(ValueError, match="needs a time zone"):
            Defer(until=datetime(2030, 1, 1))  # noqa: DTZ001 - that is the fault

    @pytest.mark.parametrize("kind", [Retry, Defer])
    def test_a_time_is_a_timedelta_or_a_number_of_seconds(self, kind: Any) -> None:
        assert [kind(after=each).after for each in (5, 0.5, 0, timedelta(minutes=1), None)] == [
            timedelta(seconds=5),
            timedelta(seconds=0.5),
            timedelta(0),
            timedelta(minutes=1),
            None,
        ]

    @pytest.mark.parametrize("kind", [Retry, Defer])
    @pytest.mark.parametrize(
        ("after", "error"),
        [
            ("soon", ValueError),
            (b"5s", TypeError),
            (True, TypeError),
            (datetime(2030, 1, 1, tzinfo=UTC), TypeError),
            (-1, ValueError),
            (timedelta(seconds=-1), ValueError),
            (float("nan"), ValueError),
            (float("inf"), ValueError),
            pytest.param(10**5000, ValueError, id="huge"),
            (1e300, ValueError),
        ],
    )
    def test_an_invalid_time_raises_at_the_call(self, kind: Any, after: Any, error: type[Exception]) -> None:
        with pytest.raises(
            error,
            match=rf"{kind.__name__}\(after=...\) (has the type|is) .*give a timedelta, a number of seconds, or a text",
        ):
            kind(after=after)


class TestOutput:
    @pytest.mark.parametrize(
        ("output", "kept"),
        [
            ({"a": [1, 2.5, "é", True, None]}, '{"a": [1, 2.5, "é", true, null]}'),
            (0, "0"),
            ("", '""'),
            ([], "[]"),
            (False, "false"),
            (Receipt(number=7), '{"number": 7, "paid": true}'),
            ([Point(1, 2)], '[{"x": 1, "y": 2}]'),
            ({"at": date(2030, 1, 2)}, '{"at": "2030-01-02"}'),
            (Decimal("1.10"), '"1.10"'),
            (UUID(int=5), '"00000000-0000-0000-0000-000000000005"'),
            (Colour.RED, '"red"'),
            ("back\\u0000slash", '"back\\\\u0000slash"'),
        ],
    )
    def test_json_and_values_that_convert_to_json_are_stored(self, claimed: Claimed, output: Any, kept: str) -> None:
        said = to_settlement(claimed(), output)

        assert (said.kind, said.output, said.error) == (SettleKind.COMPLETE, kept, None)


class TestErrors:
    def test_a_long_error_keeps_its_end(self) -> None:
        assert to_storable_text("x" * 10_000 + "the end") == "x" * (ERROR_BYTES - 7) + "the end"

    def test_characters_are_not_cut_in_two(self) -> None:
        cut = to_storable_text("é" * 5000 + "x")

        assert len(cut.encode()) <= ERROR_BYTES
        assert cut == "é" * (ERROR_BYTES // 2 - 1) + "x"

    def test_characters_that_postgresql_cannot_store_are_replaced(self) -> None:
        assert to_storable_text("a\x00b\ud800c") == "a\ufffdb?c"

    def test_a_traceback_omits_frames_of_pgrouse_and_limits_those_of_the_handler(self, raised: Exception) -> None:
        described = describe(raised)

        assert described.startswith("Traceback (most recent call last):")
        assert PACKAGE not in described
        assert described.count("in fail_deep_down") <= 20

    def test_an_error_that_cannot_be_formatted_is_replaced(self) -> None:
        class Unprintable(Exception):
            def __str__(self) -> str:
                raise RuntimeError

        assert "Unprintable" in describe(Unprintable())

    def test_a_long_message_is_cut_and_the_type_of_the_error_and_its_frames_are_kept(self) -> None:
        with pytest.raises(ValueError, match="xxx") as caught:
            raise ValueError("x" * 20_000)

        described = describe(caught.value)

        assert described.startswith("Traceback (most recent call last):\n")
        assert described.splitlines()[-1].startswith("ValueError: xxx")
        assert described.endswith("x... 18,013 characters more\n")
