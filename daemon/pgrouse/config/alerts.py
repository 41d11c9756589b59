"""The tables `[alerts]` and `[[alerts.to]]` of the configuration: which alerts go to which sink, and how often."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, Secret, SecretStr, SerializeAsAny, model_validator

from pgrouse.config import alert_template as template
from pgrouse.config.duration import Duration, between
from pgrouse.config.section import S, Section


def _matching(pattern: str, expected: str) -> AfterValidator:
    """Check a text; the error says what was expected."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"{expected}, found {text!r:.80}")
        return text

    return AfterValidator(check)


SinkName = Annotated[
    str,
    _matching(
        "[A-Za-z0-9][A-Za-z0-9._-]{0,62}",
        "is not a valid sink name: 1 to 63 of A-Z a-z 0-9 . _ - and a letter or digit first",
    ),
]
TopicPattern = Annotated[
    str,
    _matching(
        "[A-Za-z0-9._:*-]{1,200}", "is not a valid topic pattern: 1 to 200 of A-Z a-z 0-9 . _ : - and * for any of them"
    ),
]
VariableName = Annotated[str, _matching("[A-Za-z_][A-Za-z0-9_]*", "is not a valid name: letters, digits and _")]
EnvironmentName = Annotated[
    str, _matching(r"[^\x00-\x1f\x7f]{1,100}", "is not a valid environment name: 1 to 100 characters on one line")
]


def _check_http_url(given: SecretStr) -> SecretStr:
    """Check an address without repeating it: it may be a secret."""
    if not given.get_secret_value().startswith(("http://", "https://")):
        raise ValueError("expected an address that begins with https:// or http://")
    return given


HttpUrl = Annotated[SecretStr, AfterValidator(_check_http_url)]
Template = Annotated[str, AfterValidator(template.check_placeholders)]
GroupBy = Literal["topic", "result", "fingerprint"]
# Kinds of alerts, and the results of dead messages.
AlertKind = Literal[
    "dead_message",
    "rejected",
    "failed",
    "lock_expired",
    "expired",
    "breaker",
    "listener_degraded",
    "cron_late",
    "backlog",
    "no_worker",
    "workers_down",
    "snapshot_held",
    "dead_rate",
    "alerts_undelivered",
]


class AlertSink(Section):
    """A place that alerts are sent to, `[[alerts.to]]`: the keys that all of them have.

    Keys that belong to one type (`webhook`, `command`, …) are read by pgrouse.alerts.sinks, where each has a file.
    Until then it is not known which of them are secret, so each is treated as a secret.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Secret[Any]] = Field(init=False)

    name: SinkName
    """Its name in the database and in logs. A new name is a new sink."""
    topics: list[TopicPattern] = []
    """Topics whose alerts it receives, as in `orders.*`. Empty: all topics, and alerts that are not about a topic."""
    kinds: list[AlertKind] = []
    """Instead of alerts.kinds."""
    group_by: list[GroupBy] | None = None
    """Instead of alerts.group_by."""
    group_wait: Annotated[Duration, between(0 * S, 3600 * S)] | None = None
    """Instead of alerts.group_wait."""
    group_interval: Annotated[Duration, between(S, 7 * 86400 * S)] | None = None
    """Instead of alerts.group_interval."""
    repeat_interval: Annotated[Duration, between(0 * S, 30 * 86400 * S)] | None = None
    """Instead of alerts.repeat_interval."""
    escalate_after: Annotated[Duration, between(0 * S, 30 * 86400 * S)] | None = None
    """An escalation: send only groups that have continued for this long."""
    escalate_count: int | None = Field(default=None, ge=1, le=10**12)
    """An escalation: send only groups with at least this many messages. With both, whichever comes first."""
    rate_limit_per_minute: int = Field(default=10, ge=1, le=1000)
    """The maximum number of messages in a minute; further ones are combined."""
    timeout: Annotated[Duration, between(0.1 * S, 300 * S)] = 10 * S
    """How long sending one message may take."""
    title: Template | None = None
    """The title, a template with names like `{{topic}}`. Default: one line that says what happened."""
    body: Template | None = None
    """The text, also a template."""


class AlertsSettings(Section):
    """Where the daemon sends a notice when messages die and when something is wrong; docs/reference/alerts.md."""

    environment: EnvironmentName | None = None
    """The name of this queue, as in `production`. It is put in front of every title, so that you can distinguish the
    alerts of two queues."""
    kinds: list[AlertKind] = []
    """What to send alerts about: kinds of alerts, and results of dead messages. Empty: everything."""
    group_by: list[GroupBy] = ["topic", "result", "fingerprint"]
    """Dead messages with the same values in these fields form one group."""
    group_wait: Annotated[Duration, between(0 * S, 3600 * S)] = 10 * S
    """How long the first alert of a group waits for others, so that a burst becomes one message."""
    group_interval: Annotated[Duration, between(S, 7 * 86400 * S)] = 15 * 60 * S
    """At most one message about a group in this time; it reports how many died since the last one. A group with no new
    alert for this long is over."""
    repeat_interval: Annotated[Duration, between(0 * S, 30 * 86400 * S)] = 4 * 3600 * S
    """How often to repeat a message about a condition that still holds. 0s: never."""
    give_up_after: Annotated[Duration, between(60 * S, 30 * 86400 * S)] = 7 * 86400 * S
    """How long to retry a message before it is abandoned."""
    heartbeat: HttpUrl | None = None
    """An address that is called by POST again and again while alerting works: a dead man's switch. The service behind
    it reports when the calls stop."""
    heartbeat_interval: Annotated[Duration, between(S, 86400 * S)] = 60 * S
    """How often each deliverer calls `heartbeat`."""
    to: list[SerializeAsAny[AlertSink]] = []
    """The sinks: tables `[[alerts.to]]`."""

    @model_validator(mode="after")
    def _names_differ(self) -> AlertsSettings:
        names = [sink.name for sink in self.to]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f'two sinks have the name "{twice}": give each its own')
        return self
