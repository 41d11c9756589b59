"""Whether locks are extended in time, told without a clock that must not stand still."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median

from tests.server.deadline import eventually
from tests.sql.queue import Queue

# For daemons whose locks are short: nobody ends one that was extended too late because the machine stood still for a moment. Whether they are
# extended in time is looked at.
NOBODY_ENDS_LOCKS = {"maintenance_interval": "1h"}


# So that one or two that came late, or were not seen, decide nothing.
EXTENSIONS = 5


def is_kept(queue: Queue, message_id: int, lock_duration: timedelta, times: int = 1) -> bool:
    """Watch a lock until its end has moved by so many times its length; return whether, as a rule, it was extended before it was over."""
    ends = [queue.message(message_id).lock_expires_at]

    def has_moved() -> bool:
        ends.append(queue.message(message_id).lock_expires_at)
        return len(set(ends)) > EXTENSIONS and bool(ends[-1] - ends[0] >= times * lock_duration)

    eventually(has_moved)
    return is_in_time(set(ends), lock_duration)


def is_in_time(ends: set[datetime], lock_duration: timedelta) -> bool:
    """Return whether, as a rule, a lock with these ends, one after the other, was extended before it was over."""
    return median(after - before for before, after in pairwise(sorted(ends))) < lock_duration
