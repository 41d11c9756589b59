"""The driver's side of the process that holds the locks of a consumer."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from pgrouse.errors import ConfigError, DatabaseUnreachable, ExitCode, PgrouseError
from pyspark_pgrouse.claim import consumer_locks
from pyspark_pgrouse.claim.claim_client import NAME_TIMEOUT_S, ConsumerTaken
from pyspark_pgrouse.claim.consumer_locks import HeldClaims
from pyspark_pgrouse.claim.consumer_options import ConsumerOptions

# How long it may take to release its messages while the job waits: when the job ends, its container may end.
RELEASE_TIMEOUT_S = 60
ERRORS: dict[str, type[PgrouseError]] = {
    kind.__name__: kind for kind in (ConfigError, ConsumerTaken, DatabaseUnreachable)
}


class LocksProcessEnded(PgrouseError):
    """The process that extends the locks is gone."""

    exit_code = ExitCode.TRY_AGAIN


class LocksProcess:
    """The process, from the driver's side.

    As a context manager it starts the process, and ends when all messages are released.

    If the block raises, tasks of Spark may still claim: the process then looks a second time for messages that they
    have claimed.

    Args:
        options: the options of the consumer.
        name_timeout_s: how long it waits for a name that another job has.
    """

    def __init__(self, options: ConsumerOptions, name_timeout_s: float = NAME_TIMEOUT_S) -> None:
        self._options = options
        self._name_timeout_s = name_timeout_s

    def __enter__(self) -> LocksProcess:
        # Use a new session: Ctrl-C is for the job, and a shell that ends sends SIGHUP to the job alone.
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", consumer_locks.__name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            self._start()
        except BaseException:
            self.hang_up()
            raise
        return self

    def _start(self) -> None:
        with suppress(LocksProcessEnded):  # then there is no answer
            self._send(consumer_locks.options_line(self._options, self._name_timeout_s))
        answer = json.loads(self._out.readline() or '{"error": ""}')
        if (error := answer["error"]) is not None:
            raise ERRORS.get(error, PgrouseError)(answer.get("text") or "the process that extends locks did not start")

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        with suppress(PgrouseError):
            self._send({"ended": error is None})
        self.hang_up()

    def hang_up(self) -> None:
        """End its input, and wait until it has released the held messages."""
        with suppress(OSError):
            self._in.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(RELEASE_TIMEOUT_S)
        self._out.close()

    def hold(self, held: HeldClaims) -> None:
        """Send the messages that are held from now on.

        Raises:
            LocksProcessEnded: it is gone, so the locks are not extended.
        """
        self._send(asdict(held))

    def _send(self, line: dict[str, Any]) -> None:
        try:
            self._in.write(json.dumps(line) + "\n")
            self._in.flush()
        except (OSError, ValueError):
            raise LocksProcessEnded(
                "the process that extends the locks of messages has ended (killed? out of memory? "
                "another job with its name?): run it again"
            ) from None

    @property
    def _in(self) -> Any:
        return self._process.stdin

    @property
    def _out(self) -> Any:
        return self._process.stdout
