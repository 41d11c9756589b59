"""ack_policy and retry in the configuration: contradictions are refused, surprising settings are warned about."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pgrouse.config import config
from pgrouse.config.source import ConfigProblems
from pgrouse.errors import ExitCode
from pgrouse.handlers.declaration import loader

MODULE = """
def bare(payload): ...
def work(payload, ctx): ...
def soon(attempt, elapsed, error): return 1
def short(attempt): return 1
async def slow(attempt, elapsed, error): return 1
constant = 7
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "rules_jobs.py").write_text(MODULE)
    before = list(sys.path)
    yield tmp_path
    sys.path[:] = before
    sys.modules.pop("rules_jobs", None)


@pytest.fixture
def settings(folder: Path) -> Callable[[str], config.Config]:
    """Reads a configuration whose topic `job` has these further lines."""

    def settings(lines: str) -> config.Config:
        (folder / "pgrouse.toml").write_text(f'[topics.job]\nhandler = "rules_jobs:work"\n{lines}\n')
        return config.load(folder / "pgrouse.toml", environ={})

    return settings


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (
            'ack_policy = "acknowledge"',
            "pgrouse.toml:3: topics.job.ack_policy: expected 'ack', 'ack_first', 'reject_on_error', "
            "'nack_on_error' or 'manual', found 'acknowledge'",
        ),
        ("ack_policy = 1", "pgrouse.toml:3: topics.job.ack_policy: expected 'ack',"),
        ('retry_strategy = "soon"',
            "pgrouse.toml:3: topics.job.retry_strategy: expected \"module:function\", found 'soon'"),
        ('retry_strategy = "rules_jobs:later"',
            "pgrouse.toml:3: topics.job.retry_strategy: rules_jobs has no function later"),
        ('retry_strategy = "os:system"',
            "pgrouse.toml:3: topics.job.retry_strategy: module os may not be used: "
            "put it into a folder of handlers.import_path"),
        ('retry_strategy = "rules_jobs:constant"',
            "pgrouse.toml:3: topics.job.retry_strategy: rules_jobs:constant is not a function: its type is int"),
        ('retry_strategy = "rules_jobs:short"',
            "pgrouse.toml:3: topics.job.retry_strategy: rules_jobs:short cannot be called with (attempt, elapsed, "
            "error): give it three"),
        ('retry_strategy = "rules_jobs:slow"',
            "pgrouse.toml:3: topics.job.retry_strategy: rules_jobs:slow is a coroutine function: "
            "a retry strategy is a plain function"),
        (
            'ack_policy = "ack_first"\nretry_strategy = "rules_jobs:soon"',
            'pgrouse.toml:4: topics.job.retry_strategy: with ack_policy = "ack_first" nothing is tried again: '
            'remove it, or use ack_policy = "nack_on_error"',
        ),
    ],
)  # fmt: skip
def test_an_invalid_rule_is_refused_with_file_line_key_and_fix(
    settings: Callable[[str], config.Config], lines: str, problem: str
) -> None:
    with pytest.raises(ConfigProblems) as refused:
        loader.load(settings(lines))

    assert problem in str(refused.value)
    assert refused.value.exit_code == ExitCode.BAD_CONFIG


def test_a_handler_that_cannot_acknowledge_is_refused_for_manual(folder: Path) -> None:
    (folder / "pgrouse.toml").write_text('[topics.job]\nhandler = "rules_jobs:bare"\nack_policy = "manual"\n')

    with pytest.raises(ConfigProblems) as refused:
        loader.load(config.load(folder / "pgrouse.toml", environ={}))

    assert str(refused.value).endswith(
        'pgrouse.toml:3: topics.job.ack_policy: "manual" needs a handler that can acknowledge: '
        "give rules_jobs:bare a second parameter for the context"
    )


@pytest.mark.parametrize(
    ("lines", "key", "text"),
    [
        ('ack_policy = "ack_first"', "topics.job.ack_policy", "is not tried again"),
        ('ack_policy = "ack"\nretry_strategy = "rules_jobs:soon"', "topics.job.retry_strategy",
            'with ack_policy = "ack" the strategy is asked only after'),
        ('ack_policy = "reject_on_error"\nretry_strategy = "rules_jobs:soon"', "topics.job.retry_strategy",
            "never after an exception"),
        ('ack_policy = "manual"\nretry_strategy = "rules_jobs:soon"', "topics.job.retry_strategy",
            "never after an exception"),
    ],
)  # fmt: skip
def test_a_surprising_rule_is_a_warning(
    settings: Callable[[str], config.Config], lines: str, key: str, text: str
) -> None:
    (question,) = loader.find_suspicious_settings(settings(lines))

    assert question.key == key
    assert text in question.text
    assert "pgrouse.toml:" in str(question)
