"""A fork is, to itself and to others, what a process is that was started by the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.preloaded import Forked, heed_ctrl_c

# A command that prints all that it can see of how it was started, waits when it is asked to, and ends with the code 7.
PROGRAM = """
import json, os, resource, signal, subprocess, sys, threading, time
from multiprocessing import spawn

status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines())
descriptors = {each: os.readlink(f"/proc/self/fd/{each}") for each in (0, 1, 2)}
seen = {
    "arguments": [sys.argv, sys.orig_argv],
    "for children": {**spawn.get_preparation_data("child"), "authkey": None},
    "main": [__name__, __file__, __spec__, sys.modules["__main__"].__dict__ is globals()],
    "path": sys.path,
    "folder": os.getcwd(),
    "environment": dict(os.environ),
    "in C": subprocess.run("env | grep ^FORK", shell=True, capture_output=True).stdout.decode(),
    "descriptors": [descriptors, len(os.listdir("/proc/self/fd")), sys.stdout.isatty(), sys.stdout.encoding],
    "session": [os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid()],
    "threads": [threading.active_count(), status["Threads"], threading.current_thread() is threading.main_thread()],
    "signals": [status[each] for each in ("SigBlk", "SigIgn", "SigCgt")],
    "handlers": [
        str(signal.getsignal(each))
        for each in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE)
    ],
    "limits": [resource.getrlimit(each) for each in (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE, resource.RLIMIT_AS)],
    "mask": os.umask(0o22),
    "warnings": [sys.warnoptions, sys.flags.dev_mode],
}
print(json.dumps(seen), flush=True)
time.sleep(600 if "wait" in sys.argv else 0)
sys.exit(7)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "bin" / "program"
    path.parent.mkdir()
    path.write_text(PROGRAM)
    return path


@pytest.fixture
def env() -> dict[str, str]:
    return {**{name: value for name, value in os.environ.items() if name != "TERM"}, "FORK": "a\nb"}


def fork(program: Path, env: dict[str, str], *arguments: str) -> Forked:
    return Forked(program, *arguments, cwd=program.parent, env=env, log=program.parent.parent / "log")


@pytest.mark.long
def test_it_sees_what_one_sees_that_was_started_by_its_command_line(program: Path, env: dict[str, str]) -> None:
    log = program.parent.parent / "log"
    with log.open("ab") as output:
        code = subprocess.run(
            [sys.executable, program, "a b", "c"],
            cwd=program.parent,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=heed_ctrl_c,
            check=False,
        ).returncode

    forked = fork(program, env, "a b", "c").wait(30)

    started, as_fork = (json.loads(line) for line in log.read_text().splitlines())
    assert as_fork == started
    assert forked == code == 7


@pytest.mark.long
def test_a_fork_that_is_killed_says_so_and_its_siblings_continue(
    program: Path, env: dict[str, str], eventually: Any
) -> None:
    killed, other = fork(program, env, "wait"), fork(program, env, "wait")
    eventually(lambda: (program.parent.parent / "log").read_text().count("\n") == 2)

    killed.send_signal(signal.SIGKILL)

    assert killed.wait(30) == -signal.SIGKILL
    assert other.poll() is None
    other.send_signal(signal.SIGTERM)
    assert other.wait(30) == -signal.SIGTERM
