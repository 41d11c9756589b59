"""messages.append_attempt: the history of a message with one more ended attempt."""

from __future__ import annotations

from typing import Any

from psycopg.types.json import Jsonb

from tests.sql.queue import Queue

WITH_ATTEMPT = "SELECT messages.append_attempt(%s, %s, 'w', '2026-01-01', '2026-01-02', %s, %s)"


def append_attempt(
    queue: Queue, history: Any, attempt: int = 1, outcome: str = "failed", error: str | None = None
) -> Any:
    return queue.value(WITH_ATTEMPT, [None if history is None else Jsonb(history), attempt, outcome, error])


def test_the_first_attempt_starts_a_history(queue: Queue) -> None:
    (entry,) = append_attempt(queue, None, error="boom")

    assert (entry["attempt"], entry["worker"], entry["outcome"], entry["error"]) == (1, "w", "failed", "boom")
    assert entry["started"].startswith("2026-01-01T00:00:00")
    assert entry["ended"].startswith("2026-01-02T00:00:00")


def test_unknown_values_are_left_out(queue: Queue) -> None:
    assert "error" not in append_attempt(queue, None)[0]


def test_an_error_is_cut_to_1000_characters(queue: Queue) -> None:
    assert len(append_attempt(queue, None, error="é" * 5000)[0]["error"]) == 1000


def test_of_a_long_traceback_the_exception_is_kept(queue: Queue) -> None:
    frames = "".join(f'  File "/srv/shop/handlers.py", line {line}, in send\n    raise_for()\n' for line in range(40))
    error = f"Traceback (most recent call last):\n{frames}ConnectionError: the relay refused"

    kept = append_attempt(queue, None, error=error)[0]["error"]

    assert kept.endswith("ConnectionError: the relay refused")
    assert len(kept) == 1000


def test_the_history_has_at_most_20_entries_and_always_the_first(queue: Queue) -> None:
    history: Any = None
    for attempt in range(1, 25):
        history = append_attempt(queue, history, attempt)

    assert [entry["attempt"] for entry in history] == [1, *range(6, 25)]
