"""The progress of running messages: what is written when, and that the last value is never lost."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from pgrouse.client.message import Message
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
