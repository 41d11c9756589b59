"""The schedules that a configuration declares: `[schedules.nightly]`, or `Topic.every` in code."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StringConstraints, ValidationInfo, model_validator

from pgrouse.config.duration import Duration, between
from pgrouse.config.policy.own_policy import OwnBackoff, OwnRetention, OwnTimeout
from pgrouse.config.section import S, Section
from pgrouse.values.printable import printable

ScheduleName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,99}$")]
ScheduledTopic = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,199}$")]
Label = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]{1,200}$"), AfterValidator(printable)]


class ScheduleSettings(Section):
    """A message that is published on a schedule: `[schedules.nightly]`."""

    topic: ScheduledTopic = ""
    """The topic of the messages."""
    cron: str = ""
    """When: five fields (minute, hour, day of month, month, day of week), six with the second before them, `@hourly`,
    `@daily`, `@weekly`, `@monthly`, `@yearly`, or an interval like `30 seconds`."""
    time_zone: str = "UTC"
    """The time zone of `cron`, by its IANA name."""
    payload: Any = {}  # noqa: RUF012 - pydantic gives each instance a copy
    """The payload of each message."""
    headers: dict[str, Any] | None = None
    """The headers of each message."""
    channel: Label | None = None
    """The channel of each message."""
    key: Label | None = None
    """The deduplication key of each message: while a message with it waits, a tick publishes none."""
    priority: int = Field(default=5, ge=0, le=9)
    """The priority of each message, 0 (first) to 9."""
    max_attempts: int | None = Field(default=None, ge=0, le=2**31 - 1)
    """How many attempts each message has, instead of the topic's; 0 is no limit."""
    timeout: OwnTimeout | None = None
    """How long an attempt may run, instead of the topic's."""
    backoff: OwnBackoff | None = None
    """How long to wait before the next attempt, instead of the topic's: a kind, or all parts."""
    retention: OwnRetention | None = None
    """How long the archive keeps each message, instead of the topic's."""
    jitter: Annotated[Duration, between(0 * S, timedelta(days=1))] = 0 * S
    """Each message is delayed by up to this time."""
    missed: Literal["skip", "once", "all"] = "once"
    """For missed ticks: `skip` them, publish one message for all of them (`once`), or one for each (`all`)."""
    missed_limit: int = Field(default=100, ge=1, le=1000)
    """With `missed = "all"`: the maximum number of messages, for the newest ticks."""
    while_paused: Literal["publish", "skip"] = "publish"
    """For ticks while the topic is paused: `publish` their messages, which wait, or `skip` them."""

    @model_validator(mode="before")
    @classmethod
    def _add_time_zone(cls, values: Any, info: ValidationInfo) -> Any:
        """Add the time zone of the program whose settings these are, if they name none."""
        time_zone = (info.context or {}).get("time_zone")
        return {"time_zone": time_zone, **values} if time_zone and isinstance(values, dict) else values

    @model_validator(mode="after")
    def _check_complete(self, info: ValidationInfo) -> ScheduleSettings:
        missing = [key for key in ("cron", "topic") if not getattr(self, key)]
        if missing and not (info.context or {}).get("before_code"):
            raise ValueError(f"{missing[0]} is missing")
        return self
