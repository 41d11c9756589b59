"""What became of a task: its message as Django's TaskResult."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from types import ModuleType
from typing import Any

from django.conf import settings
from django.utils import timezone

from pgrouse.client.queries.message import MessageRecord
from pgrouse.contrib.django.queued_task import reconstructed
from pgrouse.contrib.django.task_api import (
    DEFAULT_TASK_PRIORITY,
    TASK_MAX_PRIORITY,
    TASK_MIN_PRIORITY,
    Task,
    TaskError,
    TaskResult,
    TaskResultStatus,
)
from pgrouse.handlers.outcome import Reject

# Headers of the message, if they are not the usual.
PRIORITY, RUN_AFTER = "django-priority", "django-run-after"
STATUS = {
    "ready": TaskResultStatus.READY,
    "delayed": TaskResultStatus.READY,
    "blocked": TaskResultStatus.READY,
    "retrying": TaskResultStatus.READY,
    "waiting": TaskResultStatus.READY,
    "running": TaskResultStatus.RUNNING,
    "success": TaskResultStatus.SUCCESSFUL,
}
# The exception of a failed task, by its result, if no exception of its own was kept.
CLASSES: dict[str, type[BaseException]] = {
    "rejected": Reject,
    "lock_expired": TimeoutError,
    "expired": TimeoutError,
    "cancelled": asyncio.CancelledError,
}
# The line below the frames of a traceback. Those of the classes of Python itself stand there without their module.
RAISED = re.compile(r"^(?P<path>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?::|$)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredError(TaskError):
    """The error of an attempt, as its text in the database has it. Anyone who publishes can write into that text."""

    @property
    def exception_class(self) -> type[BaseException]:
        """The class that the path names.

        Unlike Django's own, it imports nothing: the module must have been imported before.

        Raises:
            ImportError: no module that is imported has the class.
        """
        found = loaded_exception(self.exception_class_path)
        if found is None:
            raise ImportError(
                f"{self.exception_class_path} is no exception of a module that is imported here. "
                "The name was read from the error of a "
                "message, so it is not imported for you: import its module first, or compare exception_class_path"
            )
        return found


def to_result(record: MessageRecord, result_id: str, task: Task, queue: str, backend: str) -> TaskResult:
    """Return the result of a task.

    Args:
        record: the message, or the last one that it was redriven as.
        result_id: what it is called.
        task: whose function it runs.
        queue: where it was enqueued.
        backend: the alias of the backend.
    """
    payload = record.payload if isinstance(record.payload, dict) else {}
    headers = record.headers or {}
    attempts = list(_attempts(record))
    result = TaskResult(
        task=reconstructed(
            task,
            queue,
            priority=_priority(headers.get(PRIORITY)),
            run_after=_moment(headers.get(RUN_AFTER)),
        ),
        id=result_id,
        status=STATUS.get(record.state, TaskResultStatus.FAILED),
        enqueued_at=_shown(record.created_at),
        started_at=_shown(attempts[0][1]) if attempts else None,
        last_attempted_at=_shown(attempts[-1][1]) if attempts else None,
        finished_at=_shown(record.archived_at),
        args=payload.get("args", []),
        kwargs=payload.get("kwargs", {}),
        backend=backend,
        errors=list(_errors(record)),
        worker_ids=[worker for worker, _ in attempts],
    )
    if result.status == TaskResultStatus.SUCCESSFUL:
        object.__setattr__(result, "_return_value", record.output)
    return result


def _attempts(record: MessageRecord) -> Iterator[tuple[str, datetime]]:
    """Yield the worker and the start of each attempt; the last one is not in the history yet, or never will be."""
    ended = [each for each in record.history or [] if "started" in each]
    for each in ended:
        yield each.get("worker", ""), datetime.fromisoformat(each["started"])
    if record.locked_at is not None and (record.state == "running" or record.archived_at is not None):
        yield record.worker or "", record.locked_at


def _errors(record: MessageRecord) -> Iterator[TaskError]:
    for each in record.history or []:
        if each.get("error"):
            yield _error(each["error"], "failed")
    if STATUS.get(record.state) is None:
        yield _error(record.error or record.state, record.state)


def _error(text: str, result: str) -> TaskError:
    path = path_of(CLASSES[result]) if result in CLASSES else exception_path(text)
    return StoredError(exception_class_path=path, traceback=text)


def path_of(kind: type[BaseException]) -> str:
    """Return the path of a class, as Django's tasks name it."""
    return f"{kind.__module__}.{kind.__qualname__}"


def exception_path(traceback: str) -> str:
    """Return the path of the class whose instance a traceback ends with."""
    below = traceback.rpartition("Traceback (most recent call last):\n")[2]
    found = RAISED.search(below)
    path = found["path"] if found else "Exception"
    return path if "." in path else f"builtins.{path}"


def loaded_exception(path: str) -> type[BaseException] | None:
    """Return the exception class that a path names; None if no imported module has it. No code runs for it."""
    names = path.split(".")
    for length in range(len(names) - 1, 0, -1):
        if (found := sys.modules.get(".".join(names[:length]))) is not None:
            return _member(found, names[length:])
    return None


def _member(module: ModuleType, names: list[str]) -> type[BaseException] | None:
    found: Any = module
    for name in names:
        # getattr is not used: a module may import what it is asked for.
        found = vars(found).get(name) if isinstance(found, type | ModuleType) else None
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


def _priority(header: Any) -> int:
    """Return the priority in a header; the default if it is none."""
    is_one = type(header) is int and TASK_MIN_PRIORITY <= header <= TASK_MAX_PRIORITY
    return header if is_one else DEFAULT_TASK_PRIORITY


def _moment(header: Any) -> datetime | None:
    """Return the time in a header; None if it is none."""
    try:
        moment = datetime.fromisoformat(header)
        return _shown(moment if timezone.is_aware(moment) else timezone.make_aware(moment))
    except (TypeError, ValueError, OverflowError):
        return None


def _shown(moment: datetime | None) -> datetime | None:
    """Return a time as Django has times: aware, or by USE_TZ = False in its own zone."""
    if moment is None or settings.USE_TZ:
        return moment
    return timezone.make_naive(moment) if timezone.is_aware(moment) else moment
