"""The registry of workers: who is there, and what each does."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pydantic_core import from_json

from pgrouse.client.call import Call, select_call


@dataclass(frozen=True, slots=True)
class RegisteredWorker:
    """A worker of the last hour.

    Attributes:
        status_json: what it last reported.
        kind: daemon or http.
        concurrency: how many handlers it runs at once; over HTTP, how many messages it last asked for.
        configured_concurrency: the same before it was scaled.
        state: working, draining, stopping, silent (a daemon that died, hangs or is disconnected) or gone (over HTTP: it has stopped claiming).
        up: how long ago it started.
        age: how long ago it was last seen.
    """

    name: str
    host: str
    pid: int
    version: str
    topics: list[str]
    concurrency: int
    started_at: datetime
    seen_at: datetime
    status_json: str
    kind: str
    drain_asked_at: datetime | None
    drain_asked_by: str | None
    configured_concurrency: int
    state: str
    up: timedelta
    age: timedelta

    @property
    def status(self) -> dict[str, Any]:
        """What it last reported."""
        status: dict[str, Any] = from_json(self.status_json)
        return status


def find_workers(most: int) -> Call[list[RegisteredWorker]]:
    """Read the workers, by name."""
    return select_call("worker_state", RegisteredWorker, "ORDER BY f.name LIMIT %(most)s", most=most)
