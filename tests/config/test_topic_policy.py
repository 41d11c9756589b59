"""The settings of a policy: their valid values, the errors of others, and that they match the database."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from pgrouse.config.policy.policy_settings import NESTED, Backoff, ChannelPolicy, TopicPolicy
from pgrouse.config.policy.topic_policy import column, given_settings, invalid_keywords
from pgrouse.config.problem import to_problem
from pgrouse.config.setting_types import Keyword
from pgrouse.config.source import ConfigSource

DURATION = 'expected a duration like "250ms", "5s", "1h30m" or "1d", or a number of seconds'
SCHEMA = 'expected a JSON Schema: a table, true, or "@FILE" with one'

# Every setting, one value out of its bounds and one of another kind, and the error.
BAD = [
    ("max_attempts", -1, "must be at least 0, found -1"),
    ("max_attempts", "many", "expected a whole number, found 'many'"),
    ("lock_duration", "50ms", "must be between 100ms and 7d, found 50ms"),
    ("lock_duration", "8d", "must be between 100ms and 7d, found 8d"),
    ("lock_duration", "soon", f"{DURATION}, found 'soon'"),
    ("timeout", 0, "must be between 1ms and 30d, found 0s"),
    ("lock_expired_delay", "31d", "must be between 0s and 30d, found 31d"),
    ("strict_lock", "perhaps", "expected true or false, found 'perhaps'"),
    ("key_ttl", "366d", "must be between 0s and 365d, found 366d"),
    ("key_on_retry", "drop", "expected 'supersede' or 'keep', found 'drop'"),
    ("ttl", "-1s", f"{DURATION}, found '-1s'"),
    ("max_depth", -1, "must be at least 0, found -1"),
    ("on_full", "panic", "expected 'error' or 'drop', found 'panic'"),
    ("max_payload_bytes", 0, "must be at least 1, found 0"),
    ("max_payload_bytes", 16_777_217, "must be at most 16777216, found 16777217"),
    ("max_concurrency", 1.5, "expected a whole number, found 1.5"),
    ("dequeue_rate", -0.5, "must be at least 0.0, found -0.5"),
    ("dequeue_rate", 1e-300, "must be at least 0.000001, or 0 for no limit, found 1e-300"),
    ("dequeue_rate", "fast", "expected a number, found 'fast'"),
    ("burst", 0, "must be at least 1, found 0"),
    ("publish_rate", 1_000_001, "must be at most 1000000.0, found 1000001"),
    ("channel_concurrency", -1, "must be at least 0, found -1"),
    ("channel_min_interval", "31d", "must be between 0s and 30d, found 31d"),
    ("ordered", 2, "expected true or false, found 2"),
    ("archive_success", "some", "expected 'full', 'no_payload' or 'none', found 'some'"),
    ("retention", "59m", "must be between 1h and 36500d, found 59m"),
    ("dead_letter", "x", "expected true or false, found 'x'"),
    ("max_redrives", -1, "must be at least 0, found -1"),
    ("notify", "sometimes", "expected 'auto', 'always' or 'off', found 'sometimes'"),
    ("payload_schema", 5, f"{SCHEMA}, found 5"),
    (
        "payload_schema",
        "@none.json",
        "none.json cannot be read (No such file or directory): name a file with a JSON Schema",
    ),
    ("payload_schema", {"type": "objekt"}, "type: the value is not valid"),
    ("accept_publishes", [], "expected true or false, found a list"),
    ("backoff", {"kind": "exponentail"}, "expected 'none', 'constant', 'linear' or 'exponential', found 'exponentail'"),
    ("backoff", {"base": "11000d"}, "must be between 0s and 3650d, found 11000d"),
    ("backoff", {"base": "40000d"}, f"{DURATION}, found '40000d'"),
    ("backoff", {"factor": 0.5}, "must be at least 1.0, found 0.5"),
    ("backoff", {"jitter": 2}, 'expected "full" or a number from 0 to 1, found 2'),
    ("backoff", {"bse": "1s"}, "did you mean 'base'?"),
    ("breaker", {"failure_rate": 0}, "breaker.failure_rate: must be above 0.0, found 0"),
    ("breaker", {"failure_rate": 1.5}, "must be at most 1.0, found 1.5"),
    ("breaker", {"min_attempts": 0}, "must be at least 1, found 0"),
    ("breaker", {"window": "2d"}, "must be between 1s and 1d, found 2d"),
    ("breaker", {"pause": "0s"}, "must be between 1s and 1d, found 0s"),
    ("breaker", {"probes": 1001}, "must be at most 1000, found 1001"),
    ("breaker", {"probs": 1}, "did you mean 'probes'?"),
    ("backoff", 5, "expected a table of keys, found 5"),
]


def refusal(policy: type[TopicPolicy | ChannelPolicy], values: dict[str, Any], **how: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        policy.model_validate(values, **how)
    (error,) = caught.value.errors(include_url=False)
    return to_problem(error, ConfigSource(), NESTED.get(next(iter(values)), policy).names()).text


@pytest.mark.parametrize("strict", [None, False], ids=["in the file", "on the command line"])
@pytest.mark.parametrize(
    ("setting", "value", "expected"), BAD, ids=[f"{setting}={value!r}" for setting, value, _ in BAD]
)
def test_an_invalid_value_is_refused_with_setting_value_and_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, value: Any, expected: str, strict: bool | None
) -> None:
    monkeypatch.chdir(tmp_path)

    text = refusal(TopicPolicy, {setting: value}, strict=strict)

    assert setting in text
    assert expected in text


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        ("concurrency", -1, "concurrency: must be at least 0, found -1"),
        ("min_interval", "31d", "min_interval: must be between 0s and 30d, found 31d"),
        ("max_concurrency", 1, "unknown key 'max_concurrency'; did you mean 'concurrency'?"),
    ],
)
def test_a_channel_has_its_own_settings(setting: str, value: Any, expected: str) -> None:
    assert refusal(ChannelPolicy, {setting: value}) == expected


def test_an_unknown_setting_is_refused_with_the_nearest_known_one() -> None:
    assert refusal(TopicPolicy, {"max_atempts": 3}) == "unknown key 'max_atempts'; did you mean 'max_attempts'?"


def test_the_file_does_not_accept_text_for_a_number() -> None:
    assert refusal(TopicPolicy, {"max_attempts": "5"}) == "max_attempts: expected a whole number, found '5'"


@pytest.mark.parametrize("setting", TopicPolicy.names())
def test_every_setting_can_be_inherited_explicitly(setting: str) -> None:
    policy = TopicPolicy.model_validate({setting: "inherit"})

    assert given_settings(policy, TopicPolicy) == {setting: Keyword.INHERIT}
    assert column("mail", setting, Keyword.INHERIT) is None
    assert invalid_keywords("mail", policy, TopicPolicy) == {}
    assert "found 'inherit'" in invalid_keywords("*", policy, TopicPolicy)[setting]


@pytest.mark.parametrize(
    ("setting", "held"),
    [
        ("max_attempts", 0),
        ("dequeue_rate", 0),
        ("ttl", timedelta(0)),
        ("max_payload_bytes", 16_777_216),
        ("payload_schema", True),
        ("backoff", Backoff(kind="none")),
    ],
)
def test_none_lifts_a_limit_of_the_defaults(setting: str, held: Any) -> None:
    policy = TopicPolicy.model_validate({setting: "none"})

    assert invalid_keywords("mail", policy, TopicPolicy) == {}
    assert column("mail", setting, getattr(policy, setting)) == held


def test_none_is_a_value_of_archive_success() -> None:
    assert TopicPolicy.model_validate({"archive_success": "none"}).archive_success == "none"


@pytest.mark.parametrize("setting", ["lock_duration", "timeout", "notify", "burst"])
def test_none_is_refused_for_a_required_setting(setting: str) -> None:
    wrong = invalid_keywords("mail", TopicPolicy.model_validate({setting: "none"}), TopicPolicy)

    assert wrong == {setting: "a topic cannot be without it: set a value or 'inherit', found 'none'"}


def test_none_removes_optional_defaults() -> None:
    policy = TopicPolicy.model_validate({"timeout": "none", "max_attempts": "none"})

    assert invalid_keywords("*", policy, TopicPolicy) == {}
    assert column("*", "timeout", Keyword.NONE) is None
    assert column("*", "max_attempts", Keyword.NONE) is None
    assert column("*", "max_redrives", Keyword.NONE) == 0


def test_a_schema_is_read_from_a_file_next_to_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "order.json").write_text('{"type": "object"}')

    policy = TopicPolicy.model_validate({"payload_schema": "@order.json"}, context={"folder": tmp_path})

    assert policy.payload_schema == {"type": "object"}


def test_omitted_settings_are_not_written() -> None:
    policy = TopicPolicy.model_validate({"lock_duration": "90s", "backoff": {"base": "5s"}, "ttl": "inherit"})

    assert json.loads(policy.model_dump_json()) == {
        "lock_duration": "1m30s",
        "backoff": {"base": "5s"},
        "ttl": "inherit",
    }


def test_the_schema_for_editors_has_values_words_and_meanings() -> None:
    described = TopicPolicy.model_json_schema()["properties"]

    assert described["max_attempts"]["description"].startswith("How many attempts a message has")
    assert {"enum": ["inherit", "none"]} in described["max_attempts"]["anyOf"]
