"""A batch whose function raised: which messages use an attempt, and which are released."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from pyspark_pgrouse.claim.bisection import CALLS, Bisection
from pyspark_pgrouse.claim.claim_ref import ClaimRef
from pyspark_pgrouse.claim.outcome import AttemptOutcome, Row, SettledCounts

ERROR = "ValueError: boom"


class Books:
    """A function that raises on some messages, and a database that settles.

    Args:
        raises: whether the function raises on these messages, given the number of earlier calls.
    """

    def __init__(self, raises: Callable[[set[int], int], bool]) -> None:
        self.raises = raises
        self.calls: list[list[int]] = []
        self.outcomes: dict[int, str] = {}

    def work(self, part: Sequence[ClaimRef]) -> SettledCounts | str:
        ids = [id_ for id_, _ in part]
        self.calls.append(ids)
        if self.raises(set(ids), len(self.calls)):
            return f"{ERROR} {ids}"
        return self.note([(id_, claim, AttemptOutcome()) for id_, claim in part])

    def note(self, rows: Sequence[Row]) -> SettledCounts:
        for id_, _, outcome in rows:
            assert id_ not in self.outcomes, "settled twice"
            self.outcomes[id_] = outcome.kind
        return SettledCounts.of([(outcome.kind, 1) for *_, outcome in rows], 0)

    def of(self, outcome: str) -> list[int]:
        return sorted(id_ for id_, found in self.outcomes.items() if found == outcome)


def searched(books: Books, size: int, is_stopped: Callable[[], bool] = lambda: False) -> Bisection:
    search = Bisection(books.work, books.note, is_stopped)
    search.run([(id_, 7) for id_ in range(1, size + 1)], ERROR)
    assert len(books.outcomes) == size
    assert search.settled.total == size
    return search


@pytest.mark.parametrize("bad", [{1}, {500}, {1000}, {1, 2}, {499, 500, 501}, {3, 700, 702}, {999, 1000 - 500}])
def test_only_a_message_that_fails_alone_uses_an_attempt_and_the_others_are_processed(bad: set[int]) -> None:
    books = Books(lambda ids, _: bool(ids & bad))

    search = searched(books, 1000)

    assert set(search.at_fault) == bad
    assert (books.of("retry"), books.of("release")) == (sorted(bad), [])
    assert len(books.of("complete")) == 1000 - len(bad)
    assert all(f"[{id_}]" in error for id_, error in search.at_fault.items())
    assert not search.has_failed


def test_a_function_that_always_raises_costs_one_attempt_and_the_others_are_released() -> None:
    books = Books(lambda *_: True)

    search = searched(books, 10_000)

    assert search.has_failed
    assert (books.of("retry"), len(books.of("release"))) == ([1], 9_999)
    assert len(books.calls) < 40


def test_a_sink_that_fails_during_the_bisection_costs_one_attempt() -> None:
    books = Books(lambda ids, call: 900 in ids or call > 3)

    search = searched(books, 1000)

    assert search.has_failed
    assert len(books.of("complete")) == 750
    assert len(books.of("retry")) == 1
    assert len(books.of("release")) == 249
    assert len(books.calls) < 40


def test_a_batch_that_is_too_large_is_processed_in_parts_and_costs_no_attempt() -> None:
    books = Books(lambda ids, _: len(ids) > 100)

    search = searched(books, 1000)

    assert (search.at_fault, search.has_failed, len(books.of("complete"))) == ({}, False, 1000)


def test_the_only_message_of_a_batch_fails_alone_and_the_batch_has_failed() -> None:
    books = Books(lambda *_: True)

    search = searched(books, 1)

    assert (search.at_fault, search.has_failed, books.calls) == ({1: ERROR}, True, [])


def test_repeated_errors_that_may_be_a_broken_function_release_the_rest() -> None:
    bad = set(range(1, 101))
    books = Books(lambda ids, _: bool(ids & bad))

    search = searched(books, 400)

    assert search.has_failed
    assert len(books.of("complete")) == 300
    assert set(books.of("retry")) == set(search.at_fault) < bad
    assert set(books.of("release")) == bad - set(search.at_fault)


def test_a_bisection_with_very_many_faulty_messages_ends_and_releases_the_others() -> None:
    books = Books(lambda ids, _: any(id_ % 5 == 0 for id_ in ids))

    search = searched(books, 10_000)

    assert search.has_failed
    assert len(books.calls) == CALLS
    assert len(books.of("retry")) == len(search.at_fault) < CALLS
    assert len(books.of("release")) > 9_000


def test_a_stop_releases_unprocessed_messages_without_an_error() -> None:
    books = Books(lambda ids, _: 1 in ids)

    search = searched(books, 100, lambda: len(books.calls) >= 3)

    assert (search.at_fault, search.has_failed) == ({}, False)
    assert len(books.of("release")) == 100


def test_a_batch_that_lost_all_messages_settles_nothing() -> None:
    books = Books(lambda *_: True)

    assert searched(books, 0).has_failed
