"""The tables of policy settings in the reference, as `daemon/pgrouse/config/policy/policy_settings.py` has them.

`python -m tests.docs.policy_settings` writes them into the page; a test compares them.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from pgrouse.config.duration import show as show_duration
from pgrouse.config.policy.policy_settings import (
    SETTINGS,
    Backoff,
    Breaker,
    ChannelPolicy,
    PolicySetting,
    PolicyTable,
    TopicPolicy,
)
from pgrouse.config.policy.topic_policy import show
from tests.docs.page import Page

PAGE = "docs/reference/configuration.md"
TABLES: dict[str, type[PolicyTable]] = {
    "Policy settings of a topic": TopicPolicy,
    "Policy settings of a channel": ChannelPolicy,
    "Parts of backoff": Backoff,
    "Parts of breaker": Breaker,
}


def rows(model: type[PolicyTable]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a table, its head first."""
    own = {TopicPolicy: ("default", "`none`"), ChannelPolicy: ("`none`",)}.get(model, ())
    yield ("setting" if own else "part", "takes", *own, "meaning")
    for name, setting in SETTINGS[model].items():
        cells = {"default": _default(setting), "`none`": "yes" if setting.none is not None else ""}
        yield (f"`{name}`", setting.takes, *(cells[each] for each in own), setting.meaning)


def _default(setting: PolicySetting) -> str:
    if isinstance(setting.default, dict):
        return "[below](#parts-of-backoff)"
    return "" if setting.default is None else f"`{_shown(setting.default)}`"


def _shown(value: Any) -> str:
    return show_duration(value) if isinstance(value, timedelta) else show(value)


def written(text: str) -> str:
    """Return the page with its current tables."""
    for heading, model in TABLES.items():
        before, _, after = text.partition(f"### {heading}\n")
        lines = after.split("\n")
        begin = next(n for n, line in enumerate(lines) if line.startswith("|"))
        end = next(n for n, line in enumerate(lines[begin:], begin) if not line.startswith("|"))
        head, *body = rows(model)
        lines[begin:end] = [_line(head), "|" + "---|" * len(head), *map(_line, body)]
        text = f"{before}### {heading}\n" + "\n".join(lines)
    return text


def _line(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    page = Page(PAGE)
    page.path.write_text(written(page.text), encoding="utf-8")
