"""`pgrouse completion`."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.cli.shell import PGROUSE, Shell


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_own_script(shell: Shell, name: str) -> None:
    script = shell("completion", name).out

    assert "_PGROUSE_COMPLETE" in script
    assert shell("completion", name, "--json").object == {"shell": name, "script": script.removesuffix("\n")}


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("pgrouse sta", ["stats"]),
        ("pgrouse message c", ["cancel"]),
        ("pgrouse dead list --fa", ["--fail-if-any"]),
        ("pgrouse dead list --result re", ["rejected"]),
        ("pgrouse topic set mail max_r", ["max_redrives="]),
        ("pgrouse topic set mail max_attempts=5 backoff.ma", ["backoff.max_total="]),
        ("pgrouse topic set mail notify=a", ["notify=auto", "notify=always"]),
        ("pgrouse topic set mail --channel acme con", ["concurrency="]),
        ("pgrouse topic unset mail max_r", ["max_redrives"]),
    ],
)
def test_commands_and_options_are_completed(words: str, completed: list[str]) -> None:
    environ = {
        **os.environ,
        "_PGROUSE_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }

    done = subprocess.run([PGROUSE], env=environ, capture_output=True, text=True, check=True)

    assert [line.partition(",")[2] for line in done.stdout.splitlines()] == completed
