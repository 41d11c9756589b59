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

# How long it may take to give back what it holds, while the job waits: where the job ends, a container may end.
RELEASE_TIMEOUT_S = 60
ERRORS: dict[str, type[PgrouseError]] = {
    kind.__name__: kind for kind in (ConfigError, ConsumerTaken, DatabaseUnreachable)
}


class LocksProcessEnded(PgrouseError):
    """The process that extends the locks is gone."""

    exit_code = ExitCode.TRY_AGAIN


class LocksProcess:
    """The process, from here. As a context manager it starts, and ends when all is given back.

    If the block raises, tasks of Spark may still claim: the process then looks a second time for what they have claimed.

    Args:
        options: of the consumer.
        name_timeout_s: for how long it waits for a name that another job has.
    """

    def __init__(self, options: ConsumerOptions, name_timeout_s: float = NAME_TIMEOUT_S) -> None:
        self._options = options
        self._name_timeout_s = name_timeout_s

    def __enter__(self) -> LocksProcess:
        # In a session of its own: Ctrl-C is for the job, and a shell that ends hangs up on it alone.
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
        """End its input, and wait until it has given back what is held."""
        with suppress(OSError):
            self._in.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(RELEASE_TIMEOUT_S)
        self._out.close()

    def hold(self, held: HeldClaims) -> None:
        """Say what is held from now on.

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
                "the process that extends the locks of messages has ended (killed? out of memory? another job with its name?): run it again"
            ) from None

    @property
    def _in(self) -> Any:
        return self._process.stdin

    @property
    def _out(self) -> Any:
        return self._process.stdout
