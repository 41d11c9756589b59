"""A worker's report of measures, for the tests of measures."""

from __future__ import annotations

from itertools import count
from typing import Any

from psycopg.types.json import Jsonb

from tests.sql.queue import Queue

_numbers = count(1)


def report(queue: Queue, *measures: dict[str, Any], worker: str = "w", number: int | None = None) -> bool:
    """Report measures of a worker, which is registered first."""
    queue.call("register_worker", worker, "host", 1, "1.0", ["t"], 10)
    given = [worker, next(_numbers) if number is None else number, Jsonb(list(measures))]
    return bool(queue.value("SELECT messages.record_measures(%s, %s, %s)", given))
