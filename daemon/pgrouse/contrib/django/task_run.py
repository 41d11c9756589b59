"""Tasks as handlers."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from inspect import iscoroutinefunction
from types import TracebackType
from typing import Any

from django.utils import timezone

from pgrouse.contrib.django.queued_task import path_and_queue, reconstructed
from pgrouse.contrib.django.task_api import (
    Task,
    TaskContext,
    TaskError,
    TaskResult,
    TaskResultStatus,
    normalize_json,
    task_finished,
    task_started,
)
from pgrouse.contrib.django.task_result import path_of
from pgrouse.handlers.outcome import Defer, Fail, Outcome, Reject, describe


@dataclass(frozen=True, slots=True)
class TaskArguments:
    """The payload of a task's message."""

    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)


def handler_of(task: Task) -> Any:
    """Return a function that handles the messages of a task."""

    def run(payload: TaskArguments, ctx: Any) -> Any:
        with TaskRun(task, payload, ctx) as it:
            return it.returned(task.func(*it.args, **payload.kwargs))

    async def run_async(payload: TaskArguments, ctx: Any) -> Any:
        with TaskRun(task, payload, ctx) as it:
            return it.returned(await task.func(*it.args, **payload.kwargs))

    return run_async if iscoroutinefunction(task.func) else run


class TaskRun:
    """One run of a task, with the signals that Django's tasks have.

    Attributes:
        args: what the function is called with.
    """

    def __init__(self, task: Task, payload: TaskArguments, ctx: Any) -> None:
        self.context = ctx
        self.result = _running(task, payload, ctx)
        self._sender = type(task.get_backend())
        first = [TaskContext(task_result=self.result)] if task.takes_context else []
        self.args = [*first, *payload.args]

    def __enter__(self) -> TaskRun:
        task_started.send(self._sender, task_result=self.result)
        return self

    def returned(self, value: Any) -> Any:
        """Return what the message is settled with.

        Raises:
            Fail: the value is not JSON. Another attempt would do the work once more, and return the same.
        """
        if isinstance(value, Outcome):
            raise value
        try:
            normal = normalize_json(value)
        except (TypeError, ValueError) as error:
            raise Fail(f"the task returned what is not JSON: {error}") from error
        object.__setattr__(self.result, "_return_value", normal)
        return normal

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._finish(TaskResultStatus.SUCCESSFUL)
        elif self._is_final(error):
            self.result.errors.append(TaskError(exception_class_path=path_of(type(error)), traceback=describe(error)))
            self._finish(TaskResultStatus.FAILED)

    def _is_final(self, error: BaseException) -> bool:
        """Whether no attempt follows."""
        if isinstance(error, Reject | Fail):
            return True
        if isinstance(error, Defer) or not isinstance(error, Exception):
            return False
        most = self.context.max_attempts
        return most is not None and self.context.attempt >= most

    def _finish(self, status: TaskResultStatus) -> None:
        object.__setattr__(self.result, "status", status)
        object.__setattr__(self.result, "finished_at", timezone.now())
        task_finished.send(self._sender, task_result=self.result)


def _running(task: Task, payload: TaskArguments, ctx: Any) -> TaskResult:
    """Return what is known of the task where it runs.

    Which workers had it before, and when it was enqueued, `refresh()` reads.
    """
    began = timezone.now()
    _, queue = path_and_queue(ctx.topic)
    here = f"{socket.gethostname()}:{os.getpid()}"
    return TaskResult(
        task=reconstructed(task, queue),
        id=str(ctx.id),
        status=TaskResultStatus.RUNNING,
        enqueued_at=None,
        started_at=began,
        last_attempted_at=began,
        finished_at=None,
        args=payload.args,
        kwargs=payload.kwargs,
        backend=task.backend,
        errors=[],
        worker_ids=[*[""] * (ctx.attempt - 1), here],
    )
