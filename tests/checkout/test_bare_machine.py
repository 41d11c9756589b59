""".ci/bare-machine: a clone of the last commit, alone in a container.

Here the engine is a program that runs the command in a folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "bare-machine"
ENGINE = """#!/bin/bash
case $1 in
  version) exit "${NO_ENGINE:-0}" ;;
  build) cat >image ;;
  run) printf '%s\\n' "$@" >options; while [ "$1" != bash ]; do shift; done; cd "$MACHINE" && exec "$@" ;;
esac
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout whose ./go notes where it is and its arguments.

    The last commit is there, and one that is not committed.
    """
    checkout, machine, programs = (tmp_path / name for name in ("checkout", "machine", "programs"))
    for folder in (checkout / ".ci", machine, programs):
        folder.mkdir(parents=True)
    shutil.copy(SCRIPT, checkout / ".ci" / "bare-machine")
    (checkout / "go").write_text('#!/bin/sh\npwd\nls\nfor each; do echo "<$each>"; done\ncat\nexit 3\n')
    (programs / "docker").write_text(ENGINE)
    for program in (checkout / "go", programs / "docker"):
        program.chmod(0o755)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("MACHINE", str(machine))
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "A change"]):
        subprocess.run(["git", *who, *arguments], cwd=checkout, check=True)
    (checkout / "not-committed").touch()
    return checkout


def run(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [checkout / ".ci" / "bare-machine", *arguments], input="typed", capture_output=True, text=True, check=False
    )


def test_the_command_runs_in_a_clone_of_the_last_commit_and_its_exit_code_is_returned(
    checkout: Path, tmp_path: Path
) -> None:
    done = run(checkout, "user", "test", "-m", "not long", "tests/sql")

    expected = [str(tmp_path / "machine" / "pgrouse"), "go", "<test>", "<-m>", "<not long>", "<tests/sql>"]
    assert (done.stdout.splitlines(), done.returncode) == (expected, 3), done.stderr


@pytest.mark.parametrize(
    ("arguments", "user", "home"),
    [((), "root", "/root"), (("root", "demo"), "root", "/root"), (("user", "demo"), "tester", "/home/tester")],
)
def test_the_user_is_root_unless_another_is_asked_for_and_nothing_of_this_machine_is_mounted(
    checkout: Path, arguments: tuple[str, ...], user: str, home: str
) -> None:
    done = run(checkout, *arguments)

    options = (checkout / "options").read_text().splitlines()
    assert options[options.index("--user") + 1] == user
    assert {f"HOME={home}"} <= set(options)
    assert [each for each in options if each.startswith(("-v", "--volume", "--mount"))] == []
    assert done.stdout.splitlines()[2:] == ["<demo>"]


def test_without_an_engine_the_error_says_what_is_missing(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_ENGINE", "1")

    done = run(checkout, "user", "test")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "bare-machine: no container engine answers `docker version`: install and start one\n"


def test_another_user_is_refused(checkout: Path) -> None:
    done = run(checkout, "tester", "test")

    assert done.returncode == 2
    assert "the first argument is root or user, not tester" in done.stderr
