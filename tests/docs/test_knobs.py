"""The tables of settings in the reference say what the settings are: all of them, their bounds, whether they can be lifted, their meaning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import pytest

from pgrouse.config.duration import Bounds, show
from pgrouse.config.topic_policy import NO_LIMIT, SETTINGS, Backoff, Breaker, ChannelPolicy, PolicyTable, TopicPolicy
from tests.docs.page import Page

PAGE = Page("docs/reference/configuration.md")
SECTIONS = {
    "Policy settings of a topic": TopicPolicy,
    "Policy settings of a channel": ChannelPolicy,
    "Parts of backoff": Backoff,
    "Parts of breaker": Breaker,
}
OWN = {"payload_schema": 'a table, `true`, or `"@FILE"`', "jitter": '`"full"`, or 0\N{EN DASH}1'}


@pytest.mark.parametrize("section", SECTIONS)
def test_the_table_says_what_the_settings_are(section: str) -> None:
    rows = PAGE.section(section).rows()

    assert [tuple(row) for row in rows] == list(expected(SECTIONS[section]))


def expected(model: type[PolicyTable]) -> Iterator[tuple[str, ...]]:
    """Yield the rows that a table of these settings has."""
    with_words = model in (TopicPolicy, ChannelPolicy)
    for setting, field in SETTINGS[model].items():
        none = ("yes" if setting in NO_LIMIT else "",) if with_words else ()
        yield (f"`{setting}`", OWN.get(setting) or takes(field.annotation), *none, field.description or "")


def takes(annotation: Any) -> str:
    """Say what a setting takes."""
    metadata, kinds = [], list(get_args(annotation))
    while kinds:
        kind = kinds.pop()
        metadata += getattr(kind, "__metadata__", ())
        if get_origin(kind) is Literal:
            return ", ".join(f"`{value}`" for value in get_args(kind))
        if kind is bool:
            return "true/false"
        if isinstance(kind, type) and issubclass(kind, PolicyTable):
            return "a table"
        kinds += get_args(kind)
    for each in metadata:
        if isinstance(getattr(each, "func", None), Bounds):
            return f"duration, {show(each.func.low)}\N{EN DASH}{show(each.func.high)}"
    low, high = _bounds(metadata)
    return f"{low}\N{EN DASH}{high}" if high < 2**31 - 1 else f"{low} or more"


def _bounds(metadata: list[Any]) -> tuple[Any, Any]:
    limits = [limit for each in metadata for limit in getattr(each, "metadata", ())]
    low = next(
        f"above {each.gt}" if hasattr(each, "gt") else each.ge
        for each in limits
        if hasattr(each, "ge") or hasattr(each, "gt")
    )
    return low, next(each.le for each in limits if hasattr(each, "le"))
