"""Whether locks are extended in time, measured without a clock that a slow machine could falsify."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median

from tests.server.deadline import eventually
from tests.sql.queue import Queue

# For daemons with short locks: no session ends a lock that was extended late because the machine paused for a moment.
# A test watches whether they are extended in time.
LOCKS_ARE_NEVER_ENDED = {"maintenance_interval": "1h"}


# One or two late or unseen extensions then decide nothing.
EXTENSIONS = 5


def is_kept(queue: Queue, message_id: int, lock_duration: timedelta, times: int = 1) -> bool:
    """Watch a lock for a number of its lengths; return whether it was usually extended before it expired."""
    ends = [queue.message(message_id).lock_expires_at]

    def has_moved() -> bool:
        ends.append(queue.message(message_id).lock_expires_at)
        return len(set(ends)) > EXTENSIONS and bool(ends[-1] - ends[0] >= times * lock_duration)

    eventually(has_moved)
    return is_in_time(set(ends), lock_duration)


def is_in_time(ends: set[datetime], lock_duration: timedelta) -> bool:
    """Return whether a lock with these successive ends was usually extended before it expired."""
    return median(after - before for before, after in pairwise(sorted(ends))) < lock_duration
