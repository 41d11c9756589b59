"""Starts `pgrouse run`, or another script, as a fork of a process that has imported it.

The imports are most of what a short-lived daemon costs.

A fork runs the script of the command, as `__main__`, in a session of its own, with its own command line, folder,
environment and output. It inherits neither threads nor descriptors. Tests marked `executed` start the script itself.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import multiprocessing.process
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

# What forks of the command have imported.
IMPORTS = ("pgrouse.cli.background.run",)


def heed_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Parent:
    """The process that forks, one per program and session of tests."""

    def __init__(self, program: Path, imports: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, program, *imports],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # A shell that runs the tests in the background makes them, and their children, ignore Ctrl-C.
            preexec_fn=heed_ctrl_c,  # noqa: PLW1509
        )
        self._lock = threading.Lock()

    def ask(self, **request: Any) -> Any:
        """Send a request and return its answer."""
        with self._lock:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """End it. What it has forked continues."""
        self._process.communicate()


@cache
def parent_of(program: Path, imports: Sequence[str]) -> Parent:
    """Return the process that forks this program."""
    parent = Parent(program, imports)
    atexit.register(parent.close)
    return parent


class Forked:
    """A fork, with the part of `subprocess.Popen` that tests use.

    Args:
        program: a script in Python.
        arguments: its arguments.
        cwd: its folder.
        env: its environment.
        log: the file that its output is appended to.
        errors: the file for its errors, if they go to another.
        imports: modules that the script imports. The process that forks has imported them.
    """

    def __init__(
        self,
        program: Path,
        *arguments: str,
        cwd: Path,
        env: Mapping[str, str],
        log: Path,
        errors: Path | None = None,
        imports: Sequence[str] = IMPORTS,
    ) -> None:
        self._parent = parent_of(program, imports)
        self.pid = self._parent.ask(
            arguments=arguments, cwd=str(cwd), env=dict(env), log=str(log), errors=str(errors or log)
        )
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return how it ended, None while it runs."""
        if self.returncode is None:
            self.returncode = self._parent.ask(ended=self.pid)
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Wait for its end and return how it ended."""
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("pgrouse", timeout)
            time.sleep(0.005)
        return code

    def send_signal(self, which: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, which)


def run(
    program: Path,
    *arguments: str,
    cwd: Path,
    env: Mapping[str, str],
    folder: Path,
    imports: Sequence[str] = IMPORTS,
    within_s: float = 100,
) -> subprocess.CompletedProcess[str]:
    """Run a fork to its end, as `subprocess.run` does a command. folder: where its output is written."""
    log, errors = folder / "forked.out", folder / "forked.err"
    for each in (log, errors):
        each.write_text("")
    fork = Forked(program, *arguments, cwd=cwd, env=env, log=log, errors=errors, imports=imports)
    try:
        code = fork.wait(within_s)
    finally:
        fork.send_signal(signal.SIGKILL)
    return subprocess.CompletedProcess([program, *arguments], code, log.read_text(), errors.read_text())


def fork_on_request(program: str, imports: Sequence[str]) -> None:
    """Answer requests until there are no more, which ends the process. Returns only in a fork."""
    for each in imports:
        importlib.import_module(each)
    # A collection in a fork would write to each object, and so copy all pages.
    gc.collect()
    gc.freeze()
    while line := sys.stdin.readline():
        request = json.loads(line)
        if "ended" in request:
            pid, status = os.waitpid(request["ended"], os.WNOHANG)
            answer(os.waitstatus_to_exitcode(status) if pid else None)
        elif os.fork() == 0:
            return become(program, **request)
    os._exit(0)


def answer(found: int | None) -> None:
    os.write(1, f"{json.dumps(found)}\n".encode())


def become(program: str, arguments: list[str], cwd: str, env: dict[str, str], log: str, errors: str) -> None:
    """Make this process what it would be, had it been started by this command line."""
    os.setsid()
    output, own_errors = (os.open(each, os.O_WRONLY | os.O_APPEND | os.O_CREAT) for each in (log, errors))
    answer(os.getpid())  # who has the answer may signal the session and read the log
    for ours, descriptor in ((os.open(os.devnull, os.O_RDONLY), 0), (output, 1), (own_errors, 2)):
        os.dup2(ours, descriptor)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    # Those of the parent remember whether its own descriptors were files or terminals.
    for name, descriptor, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        old = getattr(sys, name)
        buffering = 1 if descriptor == 2 else -1
        new = open(descriptor, mode, buffering, old.encoding, old.errors, closefd=False)  # noqa: SIM115 - stays open
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = [program, *arguments]
    sys.orig_argv = [sys.executable, *sys.argv]
    multiprocessing.process.ORIGINAL_DIR = cwd


if __name__ == "__main__":
    # As for a script: what is in the folder of this file is not to be imported.
    sys.path[0] = str(Path(sys.argv[1]).parent)
    fork_on_request(sys.argv[1], sys.argv[2:])
    runpy.run_path(sys.argv[0], run_name="__main__")
