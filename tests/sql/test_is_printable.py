"""messages.is_printable: which names have only visible characters. All of Unicode, and its callers: security/test_names.py."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue

pytestmark = pytest.mark.every_server


@pytest.mark.parametrize(
    ("name", "is_printable"),
    [
        ("order-4711", True),
        ("日本語", True),
        ("", True),
        ("a\tb", False),
        ("a\u202eb", False),
        ("a\u200b", False),
        (None, None),
    ],
)
def test_invisible_characters_are_found(queue: Queue, name: str | None, is_printable: bool | None) -> None:
    assert queue.call("is_printable", name) is is_printable
