"""`pgrouse completion`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

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
def test_commands_and_options_are_completed(
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: str,
    completed: list[str],
) -> None:
    for name, value in asked(words).items():
        monkeypatch.setenv(name, value)

    with pytest.raises(SystemExit, match=r"^0$"):
        shell()

    assert offered(capsys.readouterr().out) == completed


@pytest.mark.long
def test_the_command_completes_when_a_shell_asks(folder: Path) -> None:
    done = subprocess.run(
        [PGROUSE], env={**os.environ, **asked("pgrouse message c")}, capture_output=True, text=True, check=True
    )

    assert offered(done.stdout) == ["cancel"]


def asked(words: str) -> dict[str, str]:
    """Return the variables by which bash asks for the last of these words."""
    return {"_PGROUSE_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}


def offered(written: str) -> list[str]:
    """Return the completions that were written, without their kinds."""
    return [line.partition(",")[2] for line in written.splitlines()]
