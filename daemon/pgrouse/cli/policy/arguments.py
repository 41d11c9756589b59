"""Policy settings as arguments: `max_attempts=5 lock_duration=2m backoff.kind=exponential`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from pgrouse.config.policy import policy_text
from pgrouse.config.policy.policy_settings import NESTED, SETTINGS, ChannelPolicy, TopicPolicy
from pgrouse.config.policy.policy_text import InvalidPolicy, model_of
from pgrouse.terminal.command import Command

if TYPE_CHECKING:
    from pgrouse.config.policy.policy_settings import PolicySetting


class PolicyCommand(Command):
    """A command whose help lists the policy settings: what each takes, and what it means."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the settings, group by group."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for name, setting in SETTINGS[TopicPolicy].items():
            rows = groups.setdefault(setting.group, [])
            rows.append((name, _help(setting)))
            parts = SETTINGS[NESTED[name]] if name in NESTED else {}
            rows += ((f"{name}.{part}", _help(row)) for part, row in parts.items())
        groups["With --channel"] = [(name, _help(setting)) for name, setting in SETTINGS[ChannelPolicy].items()]
        for title, listed in groups.items():
            with formatter.section(title):
                formatter.write_dl(listed)


def _help(setting: PolicySetting) -> str:
    none = ", or none" if setting.none is not None else ""
    return f"{setting.meaning} [{setting.takes}{none}]".replace("`", "")


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
        name, equals, _ = incomplete.partition("=")
        fields = SETTINGS[model_of(ctx.params.get("channel"))]
        for setting, parts in NESTED.items() if self.assigned and ctx.params.get("channel") is None else ():
            fields = {**fields, **{f"{setting}.{part}": field for part, field in SETTINGS[parts].items()}}
        if equals:
            offered = [f"{name}={value}" for value in fields[name].choices] if name in fields else []
        else:
            offered = [f"{setting}=" if self.assigned else setting for setting in fields]
        return [CompletionItem(each) for each in offered if each.startswith(incomplete)]


def read_policy(topic: str, channel: str | None, assigned: dict[str, str]) -> Any:
    """Parse a policy from the arguments.

    Raises:
        click.UsageError: everything that is wrong: setting, value and fix.
    """
    try:
        return policy_text.read_policy(topic, channel, assigned)
    except InvalidPolicy as error:
        raise click.UsageError(str(error)) from None


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
