"""What became of a task: its message as Django's TaskResult."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

from django.conf import settings
from django.utils import timezone

from pgrouse.client.message_query import MessageRecord
from pgrouse.contrib.django.queued_task import reconstructed
from pgrouse.contrib.django.task_api import DEFAULT_TASK_PRIORITY, Task, TaskError, TaskResult, TaskResultStatus

# Headers of the message, if they are not the usual.
PRIORITY, RUN_AFTER = "django-priority", "django-run-after"
STATUS = {
    "ready": TaskResultStatus.READY,
    "delayed": TaskResultStatus.READY,
    "retrying": TaskResultStatus.READY,
    "running": TaskResultStatus.RUNNING,
    "success": TaskResultStatus.SUCCESSFUL,
}
# What a task is failed by when no exception of its own was kept.
CLASSES = {
    "rejected": "pgrouse.Reject",
    "lock_expired": "builtins.TimeoutError",
    "expired": "builtins.TimeoutError",
    "cancelled": "asyncio.exceptions.CancelledError",
}
# The line below the frames of a traceback. Those of the classes of Python itself stand there without their module.
RAISED = re.compile(r"^(?P<path>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?::|$)", re.MULTILINE)


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
            priority=headers.get(PRIORITY, DEFAULT_TASK_PRIORITY),
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
    return TaskError(exception_class_path=CLASSES.get(result) or exception_path(text), traceback=text)


def exception_path(traceback: str) -> str:
    """Return the path of the class whose instance a traceback ends with."""
    below = traceback.rpartition("Traceback (most recent call last):\n")[2]
    found = RAISED.search(below)
    path = found["path"] if found else "Exception"
    return path if "." in path else f"builtins.{path}"


def _moment(text: str | None) -> datetime | None:
    return None if text is None else _shown(datetime.fromisoformat(text))


def _shown(moment: datetime | None) -> datetime | None:
    """Return a time as Django has times: aware, or by USE_TZ = False in its own zone."""
    if moment is None or settings.USE_TZ:
        return moment
    return timezone.make_naive(moment) if timezone.is_aware(moment) else moment
