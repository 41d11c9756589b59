"""The settings of a policy that a message can have itself, with the types and bounds that they have in its topic's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, ValidationError

from pgrouse.config.duration import Duration, between
from pgrouse.config.policy.policy_settings import DAY, Backoff, S, TopicPolicy
from pgrouse.config.setting_types import Keyword, TakesKind
from pgrouse.config.validation_text import describe


def read_own_policy(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return `timeout` and `retention` as timedeltas, and `backoff` as an object of JSON.

    Args:
        given: those of the three that the message has.

    Raises:
        ValueError: one of them is none; the text names it.
    """
    try:
        policy = TopicPolicy.model_validate(given)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in fault["loc"] if part in given or part in Backoff.model_fields)
        raise ValueError(f"{where}: {describe(fault, list(Backoff.model_fields))}") from None
    return {name: _value(name, getattr(policy, name)) for name in given}


def whole_backoff(value: Backoff) -> Backoff:
    """Return a backoff that is given instead of the topic's.

    Raises:
        ValueError: it has no kind.
    """
    if value.kind is None:
        raise ValueError("backoff.kind is missing: use none, constant, linear or exponential")
    return value


OwnTimeout = Annotated[Duration, between(0.001 * S, 30 * DAY)]
OwnBackoff = Annotated[Backoff, TakesKind("none", "constant", "linear", "exponential"), AfterValidator(whole_backoff)]
OwnRetention = Annotated[Duration, between(3600 * S, 36_500 * DAY)]


def _value(name: str, value: Any) -> Any:
    if name == "backoff" and value is Keyword.NONE:
        return {"kind": "none"}
    if isinstance(value, Keyword):
        raise ValueError(f"{name}: a message without its own has that of its topic: leave it out")  # noqa: TRY004
    if not isinstance(value, Backoff):
        return value
    return whole_backoff(value).model_dump(mode="json")
