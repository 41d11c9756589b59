"""The sink `command`: a program that gets each message as JSON on its standard input."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO

from pgrouse.alerts.notice import one_line
from pgrouse.alerts.sink import SendFailed

if TYPE_CHECKING:
    from pgrouse.alerts.notice import Notice
    from pgrouse.config.alerts import AlertSink

# What programs need to run at all. The daemon's environment has passwords in it.
ENVIRONMENT = ("PATH", "HOME", "LANG", "TZ")
SAID_BYTES = 2000
# sysexits.h, EX_DATAERR: this input is wrong and will be so the next time.
REFUSED = 65


class Command:
    """Runs a program for each message: exit status 0 means that it has arrived, 65 that it never will."""

    def __init__(self, settings: AlertSink) -> None:
        self.argv = list(settings.command or [])
        self.environment = (*ENVIRONMENT, *settings.environment)

    def send(self, notice: Notice, timeout_s: float) -> str:
        """Run it; return how it ended."""
        # Files, not pipes: nobody has to read while somebody writes, and what a grandchild holds open holds up nobody.
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as said:
            given.write(json.dumps(notice.payload(), ensure_ascii=False).encode(errors="replace"))
            given.seek(0)
            status = self._run(notice, given, said, timeout_s)
            if status == 0:
                return "exit status 0"
            said.seek(0)
            text = one_line(said.read(SAID_BYTES).decode(errors="replace"), 300)
        ended = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
        raise SendFailed(f"{self.argv[0]} {ended}" + (f": {text}" if text else ""), refused=status == REFUSED)

    def _run(self, notice: Notice, given: BinaryIO, said: BinaryIO, timeout_s: float) -> int:
        known = {name: os.environ[name] for name in self.environment if name in os.environ}
        try:
            process = subprocess.Popen(  # noqa: S603 - the configuration names it
                self.argv,
                stdin=given,
                stdout=subprocess.DEVNULL,
                stderr=said,
                close_fds=True,
                start_new_session=True,
                env={**known, "PGROUSE_ALERT_ID": notice.id},
            )
        except OSError as error:
            raise SendFailed(f"{self.argv[0]} cannot be started: {error.strerror}") from None
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise SendFailed(f"{self.argv[0]} was killed: it took longer than {timeout_s:g}s") from None
        finally:
            # Also what it left behind.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
