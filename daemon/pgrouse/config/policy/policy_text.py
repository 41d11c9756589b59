"""Policies as people type them: settings and their values as texts.

They are typed on the command line and in the form of the dashboard.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pgrouse.config.policy.policy_settings import NESTED, ChannelPolicy, PolicyTable, TopicPolicy
from pgrouse.config.policy.topic_policy import invalid_keywords
from pgrouse.config.problem import to_problem
from pgrouse.config.setting_types import Keyword
from pgrouse.config.source import ConfigSource


class InvalidPolicy(ValueError):
    """A setting or its value cannot be used: the text names it, and the fix."""


def model_of(channel: str | None) -> type[PolicyTable]:
    """Return the model with the settings of a topic, or of one of its channels."""
    return TopicPolicy if channel is None else ChannelPolicy


def read_policy(topic: str, channel: str | None, assigned: dict[str, str]) -> Any:
    """Parse a policy from its settings and their values as texts.

    Raises:
        InvalidPolicy: all problems, with setting, value and fix.
    """
    model = model_of(channel)
    values: dict[str, Any] = {}
    for setting, text in assigned.items():
        outer, dot, inner = setting.partition(".")
        table = values.setdefault(outer, {}) if dot else values
        if not isinstance(table, dict):
            raise InvalidPolicy(f"{setting}: {outer} is given as a whole already; leave one of them out")
        table[inner if dot else outer] = _value(setting, text)
    try:
        policy = model.model_validate(values, strict=False, context={"folder": Path.cwd()})
    except ValidationError as error:
        raise InvalidPolicy("; ".join(_problems(error, model))) from None
    if wrong := invalid_keywords(topic, policy, model):
        raise InvalidPolicy("; ".join(f"{setting}: {text}" for setting, text in wrong.items()))
    return policy


def _value(setting: str, text: str) -> Any:
    """Parse a value that is JSON; the setting's type parses all others."""
    if setting in NESTED and not text.startswith("{") and text not in {word.value for word in Keyword}:
        part = next(iter(NESTED[setting].names()))
        raise InvalidPolicy(f"{setting}: expected its parts separately, like {setting}.{part}=…, found {text!r:.80}")
    if not text.startswith("{") and (setting != "payload_schema" or text not in ("true", "false")):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidPolicy(f"{setting}: is not valid JSON: {error}, found {text!r:.80}") from None


def _problems(error: Any, model: type[PolicyTable]) -> list[str]:
    return [
        to_problem(each, ConfigSource(), NESTED.get(".".join(map(str, each["loc"][:-1])), model).names()).text.replace(
            "unknown key", "unknown setting"
        )
        for each in error.errors(include_url=False)
    ]
