"""Whether a daemon lives and is ready: what /livez, /readyz and the metrics tell of its state.

Alive: its event loop turns, and its heartbeat's thread does. A database that is away is no reason to kill it. Ready: it hears, it claims, the
database answers, and it is not about to stop.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass

from pgrouse.worker.claim_planner import Claimer
from pgrouse.worker.executor import Crew
from pgrouse.worker.heartbeat import HANG_UP_S, SEEN_EVERY_S, Heartbeat
from pgrouse.worker.claim_loop import TURN_TIMEOUT_S
from pgrouse.worker.listener import Listener, Mode

# So many signs of life may be missing before the database counts as away.
MISSING = 3
# The poll interval jitters by a fifth, and the look behind it may wait for a lock that somebody holds.
JITTER = 1.2


@dataclass(frozen=True, slots=True)
class Check:
    """One answer.

    Attributes:
        said: what was found, in words.
    """

    name: str
    ok: bool
    said: str


class Pulse:
    """Whether an event loop turns. Another thread asks it now and then; it answers when it comes to that."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asked_at: float | None = None

    def follow(self, loop: asyncio.AbstractEventLoop) -> None:
        """From now on ask this loop."""
        self._loop = loop

    def ask(self) -> None:
        """Ask, unless an answer is still owed."""
        if self._loop is None or self._asked_at is not None:
            return
        self._asked_at = time.monotonic()
        with suppress(RuntimeError):  # it is closed: the process is about to end
            self._loop.call_soon_threadsafe(self._answer)

    def _answer(self) -> None:
        self._asked_at = None

    @property
    def lag_s(self) -> float:
        """For how long the loop has owed an answer, in seconds; 0 if it owes none."""
        asked_at = self._asked_at
        return 0.0 if asked_at is None else time.monotonic() - asked_at


@dataclass(frozen=True)
class Parts:
    """What a daemon at work consists of, as far as probes ask.

    Attributes:
        poll_s: how long it sleeps at most, in seconds.
    """

    listener: Listener
    heartbeat: Heartbeat
    claimer: Claimer
    crew: Crew
    poll_s: float


class Vitals:
    """What probes ask of one daemon. Any thread may.

    Args:
        alive_within_s: after so long without a turn it counts as dead, in seconds.
        patience_s: how much longer the heartbeat may take for one beat: what connecting may take.

    Attributes:
        parts: set once it works.
        draining: set once it is told to stop.
    """

    def __init__(self, alive_within_s: float, patience_s: float) -> None:
        self.alive_within_s, self.patience_s = alive_within_s, patience_s
        self.pulse = Pulse()
        self.parts: Parts | None = None
        self.draining = False
        self._began = time.monotonic()

    @property
    def hearing(self) -> Mode:
        """Whether notifications arrive."""
        return Mode.CONNECTING if self.parts is None else self.parts.listener.mode

    @property
    def silent_s(self) -> float:
        """How long ago the database took the last sign of life in, in seconds; since the start, if it has not taken any."""
        seen_at = 0.0 if self.parts is None else self.parts.heartbeat.seen_at
        return time.monotonic() - (seen_at or self._began)

    def live(self) -> list[Check]:
        """Return what must hold, else only a new process helps."""
        lag_s = self.pulse.lag_s
        loop = Check("event_loop", lag_s < self.alive_within_s, _since("turns", "has not turned", lag_s))
        if self.parts is None:
            return [loop]
        still_s = self.parts.heartbeat.still_s
        limit_s = self.alive_within_s + self.patience_s + HANG_UP_S
        return [loop, Check("heartbeat", still_s < limit_s, _since("beats", "has not beaten", still_s))]

    def ready(self) -> list[Check]:
        """Return what must hold for it to do its work, as well as what must hold for it to live."""
        begun = Check("draining", not self.draining, "stops: it claims nothing more" if self.draining else "no")
        if self.parts is None:
            return [*self.live(), Check("database", ok=False, said="has not answered yet"), begun]
        return [*self.live(), self._database(self.parts), self._listener(self.parts), self._claims(self.parts), begun]

    def _database(self, parts: Parts) -> Check:
        ok = not parts.heartbeat.is_failing and self.silent_s < MISSING * SEEN_EVERY_S
        return Check("database", ok, f"took the last sign of life {self.silent_s:.1f} s ago")

    def _listener(self, parts: Parts) -> Check:
        return Check("listener", parts.listener.mode is Mode.LISTENING, parts.listener.mode.value)

    def _claims(self, parts: Parts) -> Check:
        age_s = time.monotonic() - parts.claimer.heard_at
        is_full = parts.crew.room().is_empty
        ok = is_full or self.draining or age_s < JITTER * parts.poll_s + TURN_TIMEOUT_S
        return Check("claims", ok, f"looked {age_s:.1f} s ago{', all places are taken' if is_full else ''}")


def _since(well: str, badly: str, seconds: float) -> str:
    return f"{badly} for {seconds:.1f} s" if seconds >= 1 else well
