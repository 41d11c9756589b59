"""The topics of a project's tasks, and the handler of each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pgrouse.config.source import Key, Origin
from pgrouse.contrib.django.backend import PgrouseBackend
from pgrouse.contrib.django.queued_task import discover_tasks, import_task, known_tasks, path_and_queue, topic_of
from pgrouse.contrib.django.task_api import Task, task_backends

HANDLER = "pgrouse.contrib.django.handlers:task."


def find_task_handlers() -> Iterator[tuple[Key, Any, Origin]]:
    """Import the module `tasks` of each app; yield the handler of each topic that its tasks may have.

    The handler is given as the configuration takes it.
    """
    backends = [each for each in task_backends.all() if isinstance(each, PgrouseBackend)]
    if not backends:
        return
    discover_tasks()
    for backend in backends:
        for path, task in _tasks_of(backend):
            origin = _origin(task)
            for queue in sorted(backend.queues):
                yield ("topics", topic_of(path, queue), "handler"), f"{HANDLER}{task.module_path}", origin


def queue_of_handler(topic: str, handler: str) -> str | None:
    """Return the queue of a topic; None: it is not handled by a task."""
    return path_and_queue(topic)[1] if handler.startswith(HANDLER) else None


def _tasks_of(backend: PgrouseBackend) -> Iterator[tuple[str, Task]]:
    for task in known_tasks():
        if task.backend == backend.alias:
            yield task.module_path, task
    for old, new in backend.renamed.items():
        if (task := import_task(new)) is not None:
            yield old, task


def _origin(task: Task) -> Origin:
    code = task.func.__code__
    return Origin("code", Path(code.co_filename), code.co_firstlineno)
