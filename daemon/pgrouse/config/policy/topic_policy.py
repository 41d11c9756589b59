"""The wanted policies of a topic.

They are values of settings and keywords; here is where each keyword is allowed, and how they are written.

Settings that a table or a command does not name stay as they are. Two keywords can replace a value: `inherit` uses the
default of topic `*`, `none` removes a limit even if the default has one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from pgrouse.config.duration import show as show_duration
from pgrouse.config.policy.policy_settings import SETTINGS, ChannelPolicy, PolicySetting, PolicyTable, TopicPolicy
from pgrouse.config.setting_types import Keyword

DEFAULTS = "*"
ROWS: dict[str, PolicySetting] = SETTINGS[TopicPolicy] | SETTINGS[ChannelPolicy]


def given_settings(policy: PolicyTable, model: type[PolicyTable]) -> dict[str, Any]:
    """Return the settings of a model that a table sets, with their values, without the table's other keys."""
    return {name: value for name in SETTINGS[model] if (value := getattr(policy, name)) is not None}


@dataclass(frozen=True)
class DesiredPolicy:
    """The policies wanted for one topic, as far as they are set.

    Attributes:
        policy: the topic's own settings.
        channels: the settings of single channels.
        subscriptions: the topics whose messages this topic also gets.
    """

    policy: TopicPolicy = field(default_factory=TopicPolicy)
    channels: Mapping[str, ChannelPolicy] = field(default_factory=dict)
    subscriptions: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything is set."""
        return bool(given_settings(self.policy, TopicPolicy) or self.channels or self.subscriptions)


def invalid_keywords(topic: str, policy: PolicyTable, model: type[PolicyTable]) -> dict[str, str]:
    """Return the settings whose keyword has no meaning there, each with the problem and the fix."""
    return {
        setting: text
        for setting, value in given_settings(policy, model).items()
        if (text := _invalid_keyword(topic, setting, value))
    }


def _invalid_keyword(topic: str, setting: str, value: Any) -> str | None:
    if value is Keyword.INHERIT and topic == DEFAULTS:
        fix = "set a value" if ROWS[setting].is_required else "'none' takes it away"
        return f"the defaults have nothing to inherit from: {fix}, found 'inherit'"
    if value is not Keyword.NONE or ROWS[setting].none is not None:
        return None
    if topic != DEFAULTS:
        return "a topic cannot be without it: set a value or 'inherit', found 'none'"
    return "the defaults cannot be without it: set a value, found 'none'" if ROWS[setting].is_required else None


def column(topic: str, setting: str, value: Any) -> Any:
    """Return the column's value for a value or keyword that is allowed there."""
    row = ROWS[setting]
    if value is Keyword.INHERIT or (value is Keyword.NONE and topic == DEFAULTS and not row.is_required):
        return None
    return row.none if value is Keyword.NONE else value


def show(value: Any) -> str:
    """Return the value of a setting as the command line reads it."""
    match value:
        case Keyword():
            return str(value.value)
        case bool():
            return str(value).lower()
        case timedelta():
            return show_duration(value)
        case Mapping():
            return json.dumps(value, ensure_ascii=False)
        case float():
            return f"{value:g}"
        case _:
            return str(value)


def show_setting(setting: str, value: Any) -> str:
    """Return the value of a setting as text; a zero that removes a limit as the keyword for it."""
    row = ROWS.get(setting)
    lifts = row is not None and row.none is not None and not row.none and value == row.none
    return show(Keyword.NONE if lifts else value)
