"""PolicyTable of a policy as arguments: `max_attempts=5 lock_duration=2m backoff.kind=exponential`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from pgrouse.config.topic_policy import PolicyTable


class PolicySettingType(click.ParamType[str]):
    """The name of a setting; with `assigned` an equals sign and a value behind it."""

    name = "setting"

    def __init__(self, *, assigned: bool) -> None:
        self.assigned = assigned

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Make sure that there is an equals sign, or none."""
        name, equals, _ = str(value).partition("=")
        if self.assigned and not (name and equals):
            self.fail(f"expected a policy setting and its value like max_attempts=5, found {value!r:.100}", param, ctx)
        if equals and not self.assigned:
            self.fail(f"expected the name of a policy setting like max_attempts, found {value!r:.100}", param, ctx)
        if not self.assigned and "." in name:
            self.fail(
                f"expected a whole policy setting like {name.partition('.')[0]!r:.100}, found {value!r:.100}",
                param,
                ctx,
            )
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Offer the names of settings, and behind the equals sign the values of those that have few."""
        from pgrouse.config.topic_policy import NESTED, SETTINGS  # noqa: PLC0415

        name, equals, _ = incomplete.partition("=")
        fields = SETTINGS[model_of(ctx.params.get("channel"))]
        for setting, parts in NESTED.items() if self.assigned and ctx.params.get("channel") is None else ():
            fields = {**fields, **{f"{setting}.{part}": field for part, field in SETTINGS[parts].items()}}
        if equals:
            offered = [f"{name}={value}" for value in _values(fields[name].annotation)] if name in fields else []
        else:
            offered = [f"{setting}=" if self.assigned else setting for setting in fields]
        return [CompletionItem(each) for each in offered if each.startswith(incomplete)]


def _values(annotation: Any) -> list[str]:
    """Return the values that a setting can have, and its words, if they can be counted."""
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    if annotation is bool:
        return ["true", "false"]
    return [value for kind in get_args(annotation) for value in _values(kind)]


def model_of(channel: str | None) -> type[PolicyTable]:
    """Return the settings that there are: those of a topic, or of one of its channels."""
    from pgrouse.config.topic_policy import ChannelPolicy, TopicPolicy  # noqa: PLC0415

    return TopicPolicy if channel is None else ChannelPolicy


def read_policy(topic: str, channel: str | None, assigned: dict[str, str]) -> Any:
    """Parse a policy from the arguments.

    Raises:
        click.UsageError: everything that is wrong: setting, value and fix.
    """
    from pydantic import ValidationError  # noqa: PLC0415

    from pgrouse.config.topic_policy import invalid_keywords  # noqa: PLC0415

    model = model_of(channel)
    values: dict[str, Any] = {}
    for setting, text in assigned.items():
        outer, dot, inner = setting.partition(".")
        table = values.setdefault(outer, {}) if dot else values
        if not isinstance(table, dict):
            raise click.UsageError(f"{setting}: {outer} is given as a whole already; leave one of them out")
        table[inner if dot else outer] = _value(setting, text)
    try:
        policy = model.model_validate(values, strict=False, context={"folder": Path.cwd()})
    except ValidationError as error:
        raise click.UsageError("; ".join(_problems(error, model))) from None
    if wrong := invalid_keywords(topic, policy, model):
        raise click.UsageError("; ".join(f"{setting}: {text}" for setting, text in wrong.items()))
    return policy


def _value(setting: str, text: str) -> Any:
    """Read a value that is JSON; all others are read by the setting's type."""
    from pgrouse.config.topic_policy import NESTED, Keyword  # noqa: PLC0415

    if setting in NESTED and not text.startswith("{") and text not in {word.value for word in Keyword}:
        part = next(iter(NESTED[setting].names()))
        raise click.UsageError(f"{setting}: expected its parts separately, like {setting}.{part}=…, found {text!r:.80}")
    if not text.startswith("{") and (setting != "payload_schema" or text not in ("true", "false")):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"{setting}: is not valid JSON: {error}, found {text!r:.80}") from None


def _problems(error: Any, model: type[PolicyTable]) -> list[str]:
    from pgrouse.config.problem import to_problem  # noqa: PLC0415
    from pgrouse.config.source import ConfigSource  # noqa: PLC0415
    from pgrouse.config.topic_policy import NESTED  # noqa: PLC0415

    return [
        to_problem(each, ConfigSource(), NESTED.get(".".join(map(str, each["loc"][:-1])), model).names()).text.replace(
            "unknown key", "unknown setting"
        )
        for each in error.errors(include_url=False)
    ]


def assignments(given: tuple[str, ...]) -> dict[str, str]:
    """Split `setting=value` arguments.

    Raises:
        click.UsageError: a setting is given twice.
    """
    found: dict[str, str] = {}
    for each in given:
        setting, _, value = each.partition("=")
        if setting in found:
            raise click.UsageError(
                f"{setting} is given twice: {found[setting]!r:.80} and {value!r:.80}; leave one of them out"
            )
        found[setting] = value
    return found
