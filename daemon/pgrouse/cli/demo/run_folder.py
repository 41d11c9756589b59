"""The folder of one run: the logs of its daemons, and a record of what to stop if it was left running."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Self

from pgrouse.cli.demo.worker import RunningWorker, stop_left_behind
from pgrouse.devdb import os_user
from pgrouse.errors import ExitCode, PgrouseError


class DemoRuns(PgrouseError):
    """Another demo runs on the same database."""

    exit_code = ExitCode.TRY_AGAIN


class RunFolder:
    """A folder that one demo at a time holds; each database that is named by a DSN has its own folder.

    Attributes:
        path: the folder of the logs. With a database that the user named they are deleted at the end, unless they
            contain a problem.
        keep_logs: keep the logs.
    """

    def __init__(self, dsn: str | None) -> None:
        self._is_private = dsn is None
        name = "demo-run" if dsn is None else f"demo-run-{sha256(dsn.encode()).hexdigest()[:12]}"
        self.path = os_user.own_folder(_cache_folder() / name)
        self.keep_logs = self._is_private
        self._state = self.path / "daemons.json"

    def __enter__(self) -> Self:
        """Take the folder.

        Raises:
            DemoRuns: another process has it.
        """
        self._lock = (self.path / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise DemoRuns("a demo is running already: wait for its end, or press Ctrl-C where it runs") from None
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        failed = kind is not None and issubclass(kind, Exception) and any(self.path.glob("*.log"))
        self._state.unlink(missing_ok=True)
        if not (self.keep_logs or failed):
            shutil.rmtree(self.path)
        self._lock.close()

    @property
    def was_left(self) -> bool:
        """Whether an earlier demo has left something running, on purpose or because it was killed."""
        return self._state.exists()

    def note(self, running: list[RunningWorker]) -> None:
        """Record that the demo runs and with which daemons, for a later process that stops them."""
        half = self._state.with_suffix(".new")
        half.write_text(json.dumps(running))
        half.replace(self._state)

    def stop_daemons(self) -> int:
        """Stop the daemons that an earlier demo has left; return their number."""
        noted = json.loads(self._state.read_text()) if self.was_left else []
        stopped = sum(stop_left_behind(pid, Path(log)) for pid, log in noted)
        for log in self.path.glob("*.log"):
            log.unlink()
        return stopped


def _cache_folder() -> Path:
    """Return the user's cache folder: these files are for the user, not for the user that the server runs as."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pgrouse"
