"""The sink `command`: a program that gets each message as JSON on its standard input."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, BinaryIO

from pydantic import Field

from pgrouse.alerts.notice import one_line
from pgrouse.alerts.sink import SendFailed, SinkTable
from pgrouse.config.alerts import VariableName
from pgrouse.errors import ConfigError

if TYPE_CHECKING:
    from pgrouse.alerts.notice import Notice

# Variables that programs need to run at all. The daemon's environment holds passwords, so it is not passed on.
ENVIRONMENT = ("PATH", "HOME", "LANG", "TZ")
STDERR_BYTES = 2000
# sysexits.h, EX_DATAERR: the input is wrong, and trying again does not help.
REJECTED = 65


class CommandTable(SinkTable):
    """A program, without a shell."""

    type = "command"

    command: Annotated[list[str], Field(min_length=1)]
    """A program and its arguments; it gets JSON on its standard input. No shell."""
    environment: list[VariableName] = Field(default_factory=list)
    """Environment variables that the program gets; no others except PATH, HOME, LANG and TZ."""

    def check(self) -> None:
        """Check whether there is such a program."""
        if shutil.which(self.command[0]) is None:
            raise ConfigError(f"there is no program {self.command[0]}")

    def send(self, notice: Notice, timeout_s: float) -> str:
        """Run it; return how it ended: exit status 0 means delivered, 65 that a retry is useless."""
        # Files, not pipes: nothing has to be read while the program writes, and a grandchild that keeps them open does
        # not block us.
        with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stderr:
            stdin.write(json.dumps(notice.payload(), ensure_ascii=False).encode(errors="replace"))
            stdin.seek(0)
            status = self._run(notice, stdin, stderr, timeout_s)
            if status == 0:
                return "exit status 0"
            stderr.seek(0)
            text = one_line(stderr.read(STDERR_BYTES).decode(errors="replace"), 300)
        ended = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
        raise SendFailed(f"{self.command[0]} {ended}" + (f": {text}" if text else ""), refused=status == REJECTED)

    def _run(self, notice: Notice, stdin: BinaryIO, stderr: BinaryIO, timeout_s: float) -> int:
        known = {name: os.environ[name] for name in (*ENVIRONMENT, *self.environment) if name in os.environ}
        try:
            process = subprocess.Popen(  # noqa: S603 - the configuration names it
                self.command,
                stdin=stdin,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                close_fds=True,
                start_new_session=True,
                env={**known, "PGROUSE_ALERT_ID": notice.id},
            )
        except OSError as error:
            raise SendFailed(f"{self.command[0]} cannot be started: {error.strerror}") from None
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise SendFailed(f"{self.command[0]} was killed: it took longer than {timeout_s:g}s") from None
        finally:
            # Also the processes that it started.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
