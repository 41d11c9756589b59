"""messages.payload_preview: the beginning of a payload, never at the price of all of it."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_a_small_payload_is_cut(queue: Queue) -> None:
    assert queue.value("SELECT messages.payload_preview('[1, 2, 3]', NULL, 4)") == "[1, "


def test_of_bytes_only_their_number_is_said(queue: Queue) -> None:
    assert queue.value("SELECT messages.payload_preview(NULL, 'abc', 10)") == "3 bytes"


def test_none_is_asked_for_by_zero(queue: Queue) -> None:
    assert queue.value("SELECT messages.payload_preview('1', NULL, 0)") is None
