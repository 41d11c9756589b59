"""What the hub keeps of one page, and what a viewer of it is sent."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from pgrouse.web.live_updates import Show


def read(news: bytes) -> dict[str, Any]:
    """Return the data of an event."""
    event, data = news.decode().strip().split("\n")
    assert event == "event: update"
    found: dict[str, Any] = json.loads(data.removeprefix("data: "))
    return found


def test_a_viewer_is_sent_only_the_parts_that_differ_from_what_he_has() -> None:
    show = Show()
    show.put({"a": "1", "b": "1"}, {"c": {"y": [1]}})
    seen = show.version
    show.put({"a": "1", "b": "2"}, {"c": {"y": [1]}})

    news = read(show.news(seen))

    assert (news["parts"], news["charts"]) == ({"b": "2"}, {})
    assert read(show.news(0))["parts"] == {"a": "1", "b": "2"}


def test_who_was_away_for_several_changes_is_sent_the_newest_state_and_nothing_in_between() -> None:
    show = Show()
    for n in range(100):
        show.put({"a": str(n)}, {})

    assert read(show.news(3))["parts"] == {"a": "99"}


def test_what_is_the_same_wakes_nobody() -> None:
    async def main() -> bool:
        show = Show()
        show.put({"a": "1"}, {})
        turn = show.turn.next()
        show.put({"a": "1"}, {})
        return turn.is_set()

    assert asyncio.run(main()) is False


def test_the_end_of_a_trouble_wakes_all_even_if_nothing_changed() -> None:
    async def main() -> tuple[bool, str]:
        show = Show()
        show.put({"a": "1"}, {})
        show.fail("away")
        turn = show.turn.next()
        show.put({"a": "1"}, {})
        return turn.is_set(), show.trouble

    assert asyncio.run(main()) == (True, "")


def test_viewers_who_are_equally_far_share_the_text() -> None:
    show = Show()
    show.put({"a": "1"}, {})

    assert show.news(0) is show.news(0)
