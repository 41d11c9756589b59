"""The progress of running messages: what is written when, and that the last value is never lost."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import pytest

from pgrouse.client.message import Message
from pgrouse.handlers.ctx.progress import progress_json
from pgrouse.worker.execution.progress import WRITE_EVERY_S, Progress

Claimed = Callable[..., Message]


@pytest.fixture
def woken() -> list[bool]:
    return []


@pytest.fixture
def progress(woken: list[bool]) -> Progress:
    return Progress(lambda: woken.append(True))


def texts(progress: Progress, now: float) -> list[str]:
    return [note.text for note in progress.due(now)]


def test_the_first_report_is_due_at_once_and_wakes_the_writer(
    progress: Progress, woken: list[bool], claimed: Claimed
) -> None:
    progress.note(claimed(), "1")

    assert woken == [True]
    assert texts(progress, time.monotonic()) == ["1"]


def test_later_reports_wait_a_second_and_only_the_last_is_written(
    progress: Progress, woken: list[bool], claimed: Claimed
) -> None:
    message, now = claimed(), time.monotonic()
    progress.note(message, "1")
    texts(progress, now)

    progress.note(message, "2")
    progress.note(message, "3")

    assert len(woken) == 1
    assert texts(progress, now + 0.9 * WRITE_EVERY_S) == []
    assert progress.pause_s(now) == pytest.approx(WRITE_EVERY_S)
    assert texts(progress, now + WRITE_EVERY_S) == ["3"]
    assert texts(progress, now + 9 * WRITE_EVERY_S) == [], "what is written is not due any more"


def test_a_writer_without_a_report_has_no_due_time(progress: Progress, claimed: Claimed) -> None:
    progress.note(claimed(), "1")
    progress.due(time.monotonic())

    assert progress.pause_s(time.monotonic()) == math.inf


def test_a_report_that_could_not_be_written_is_due_again_with_its_newest_value(
    progress: Progress, claimed: Claimed
) -> None:
    message, now = claimed(), time.monotonic()
    progress.note(message, "1")
    notes = progress.due(now)
    progress.note(message, "2")

    progress.put_back(notes)

    assert texts(progress, now + WRITE_EVERY_S) == ["2"]


def test_the_last_report_is_kept_until_the_message_ends(progress: Progress, claimed: Claimed) -> None:
    message = claimed()
    again = message._replace(claim_id=message.claim_id + 1)
    progress.note(message, "1")
    progress.due(time.monotonic())

    assert progress.last(message) == "1"
    assert progress.last(again) is None, "another claim of the same message has said nothing"
    progress.forget(message)
    assert progress.last(message) is None
    assert not progress.notes


@pytest.mark.parametrize(
    ("reported", "text"),
    [
        ((1, None, None), '{"done": 1}'),
        ((0.5, 2, "MiB"), '{"done": 0.5, "total": 2, "unit": "MiB"}'),
        ((0, 0, "Zeilen für Köln"), '{"done": 0, "total": 0, "unit": "Zeilen für Köln"}'),
    ],
)
def test_a_progress_is_stored_as_reported(reported: tuple[Any, ...], text: str) -> None:
    assert progress_json(*reported) == text


@pytest.mark.parametrize(
    ("reported", "named"),
    [
        ((-1, None, None), r"done=-1"),
        ((math.inf, None, None), "done=inf"),
        ((10**400, None, None), "done=1000"),
        ((None, None, None), "done=None"),
        ((1, "all", None), "total='all'"),
        ((1, False, None), "total=False"),
        ((1, 2, ""), "unit=''"),
        ((1, 2, "a\nb"), r"unit='a\\nb'"),
    ],
)
def test_an_invalid_progress_is_refused_with_its_name_and_value(reported: tuple[Any, ...], named: str) -> None:
    with pytest.raises(ValueError, match=rf"ctx\.progress\({named}.*: use a "):
        progress_json(*reported)
