"""The examinations of one web server, for the page and for the API."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from fastapi import FastAPI

from pgrouse.doctor import examine

# An examination makes connections of its own, and listens: so often, however many look.
REUSE_S = 15.0
# A page that opens with older findings shows them only until it has new ones.
OLD_S = 60.0
ORDER = ("fail", "warn", "ok")


@dataclass
class DoctorRun:
    """The last examination, and the one that runs.

    Attributes:
        findings: what was found, the worst first.
        at: when it ended; None = there was none yet.
    """

    findings: list[Any] = field(default_factory=list)
    at: datetime | None = None
    ended_s: float = float("-inf")
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def is_old(self) -> bool:
        """Whether a page should ask for a new one."""
        return time.monotonic() - self.ended_s > OLD_S

    async def refresh(self, app: FastAPI) -> None:
        """Examine, unless it was done just now. Who comes while it runs waits for the same one."""
        async with self.lock:
            if time.monotonic() - self.ended_s < REUSE_S:
                return
            found = await asyncio.to_thread(examine, app.state.settings)
            self.findings = sorted(found, key=lambda each: ORDER.index(each.level.value))
            self.at, self.ended_s = datetime.now(UTC), time.monotonic()


def current_doctor_run(app: FastAPI) -> DoctorRun:
    """Return the examinations of one web server; the API has the same."""
    if not hasattr(app.state, "doctor_run"):
        app.state.doctor_run = DoctorRun()
    doctor_run: DoctorRun = app.state.doctor_run
    return doctor_run
