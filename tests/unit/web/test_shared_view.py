"""What LiveUpdates keeps of one page, and what it sends to a viewer."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from pgrouse.web.live.live_updates import SharedView


def read(news: bytes) -> dict[str, Any]:
    """Return the data of an event."""
    event, data = news.decode().strip().split("\n")
    assert event == "event: update"
    found: dict[str, Any] = json.loads(data.removeprefix("data: "))
    return found


def test_a_viewer_gets_only_the_changed_parts() -> None:
    shared = SharedView()
    shared.update({"a": "1", "b": "1"}, {"c": {"y": [1]}})
    seen = shared.version
    shared.update({"a": "1", "b": "2"}, {"c": {"y": [1]}})

    news = read(shared.changes_since(seen))

    assert (news["parts"], news["charts"]) == ({"b": "2"}, {})
    assert read(shared.changes_since(0))["parts"] == {"a": "1", "b": "2"}


def test_a_viewer_that_missed_changes_gets_only_the_newest_state() -> None:
    shared = SharedView()
    for n in range(100):
        shared.update({"a": str(n)}, {})

    assert read(shared.changes_since(3))["parts"] == {"a": "99"}


def test_an_unchanged_state_wakes_no_viewer() -> None:
    async def main() -> bool:
        shared = SharedView()
        shared.update({"a": "1"}, {})
        broadcast = shared.broadcast.next_event()
        shared.update({"a": "1"}, {})
        return broadcast.is_set()

    assert asyncio.run(main()) is False


def test_the_end_of_an_outage_wakes_all_viewers_even_without_a_change() -> None:
    async def main() -> tuple[bool, str]:
        shared = SharedView()
        shared.update({"a": "1"}, {})
        shared.mark_stale("away")
        broadcast = shared.broadcast.next_event()
        shared.update({"a": "1"}, {})
        return broadcast.is_set(), shared.stale_reason

    assert asyncio.run(main()) == (True, "")


def test_viewers_with_the_same_state_share_the_text() -> None:
    shared = SharedView()
    shared.update({"a": "1"}, {})

    assert shared.changes_since(0) is shared.changes_since(0)
