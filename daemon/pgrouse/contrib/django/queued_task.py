"""Tasks that are enqueued here, and the topics of their messages.

The topic of a task is the path of its function: `shop.tasks.send_receipt`; in another queue than the default one the
queue stands before it: `reports:shop.tasks.send_receipt`. So each task has its own policy, statistics and dead
messages, and a daemon that does not know a task leaves its messages to others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from django.utils.module_loading import autodiscover_modules

from pgrouse.config.duration import AnyDuration
from pgrouse.config.policy.policy_options import BackoffKind, BackoffOptions
from pgrouse.config.source import Key, Origin
from pgrouse.contrib.django.task_api import (
    DEFAULT_TASK_PRIORITY,
    DEFAULT_TASK_QUEUE_NAME,
    BaseTaskBackend,
    Task,
    task_backends,
)
from pgrouse.publishing.new_message import OWN_POLICY, PublishOptions

# How many of Django's 100 priorities above 0, and below 0, are one of the queue's 5 and 4. There 0 is the first, and 5
# the default.
ABOVE, BELOW = 20, 25
DEFAULT_LEVEL = 5
# What a task may have instead of its topic.
OWN_SETTINGS = ("max_attempts", *OWN_POLICY)

_tasks: dict[str, Task] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedTask(Task):
    """A task whose backend is this.

    Every one is known by the path of its function, so that a daemon finds those of the project.

    Attributes:
        max_attempts: how many attempts its message has, instead of what its topic says; 0 is no limit.
        timeout: how long an attempt may run, as a publish takes it.
        backoff: how long to wait before the next attempt: a kind like "exponential", or its parts.
        retention: how long the archive keeps the message, and so the result.
    """

    # They say how it runs, not which task it is.
    max_attempts: int | None = field(default=None, compare=False)
    timeout: AnyDuration | None = field(default=None, compare=False)
    backoff: BackoffOptions | BackoffKind | None = field(default=None, compare=False)
    retention: AnyDuration | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Check the task, and remember it."""
        Task.__post_init__(self)
        _tasks[self.module_path] = self

    def using(self, **changes: Any) -> QueuedTask:
        """Return the task with other options: those of Django, and `max_attempts`, `timeout`, `backoff`, `retention`.

        Raises:
            InvalidTask: a value that the option cannot have.
        """
        own = {name: changes.pop(name) for name in OWN_SETTINGS if name in changes}
        changed: QueuedTask = Task.using(self, **changes)
        return replace(changed, **own) if own else changed

    def publish_options(self) -> PublishOptions:
        """Return what its message has instead of its topic."""
        return cast(
            "PublishOptions", {name: value for name in OWN_SETTINGS if (value := getattr(self, name)) is not None}
        )


def known_tasks() -> list[Task]:
    """Return the tasks of all modules that were imported."""
    return list(_tasks.values())


def discover_tasks() -> None:
    """Import the module `tasks` of each installed app: what the project declares as its tasks."""
    autodiscover_modules("tasks")


def find_known_task(path: str) -> Task | None:
    """Return the task of the project whose function has a path; None: there is none.

    The path may come from a message: only modules that the project names are imported for it.
    """
    if path not in _tasks:
        discover_tasks()
    return _tasks.get(path)


def import_task(path: str) -> Task | None:
    """Return the task whose function has a path from the settings or the configuration; None: there is none.

    Its module is imported.

    Raises:
        ImportError: the module exists and cannot be imported.
    """
    if path not in _tasks and (module := path.rpartition(".")[0]):
        try:
            import_module(module)
        except ModuleNotFoundError as error:
            if not f"{module}.".startswith(f"{error.name}."):
                raise
    return _tasks.get(path)


def topic_of(path: str, queue: str) -> str:
    """Return the topic of a task in a queue."""
    return path if queue == DEFAULT_TASK_QUEUE_NAME else f"{queue}:{path}"


def path_and_queue(topic: str) -> tuple[str, str]:
    """Return whose topic it is."""
    queue, _, path = topic.rpartition(":")
    return path, queue or DEFAULT_TASK_QUEUE_NAME


def to_level(priority: int) -> int:
    """Return the queue's priority for one of Django's: 100 to -100 become 0 to 9."""
    return DEFAULT_LEVEL - -(-priority // ABOVE) if priority > 0 else DEFAULT_LEVEL + -(priority // BELOW)


def reconstructed(
    task: Task, queue: str, *, priority: int = DEFAULT_TASK_PRIORITY, run_after: datetime | None = None
) -> Task:
    """Return a task as it was enqueued."""
    return type(task)(
        func=task.func,
        backend=task.backend,
        takes_context=task.takes_context,
        queue_name=queue,
        priority=priority,
        run_after=run_after,
    )


HANDLER = "pgrouse.contrib.django.handlers:task."


def find_task_handlers() -> Iterator[tuple[Key, Any, Origin]]:
    """Import the module `tasks` of each app; yield the handler of each topic that its tasks may have.

    The handlers are written as the configuration takes them.
    """
    backends = [each for each in task_backends.all() if issubclass(each.task_class, QueuedTask)]
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


def _tasks_of(backend: BaseTaskBackend) -> Iterator[tuple[str, Task]]:
    for task in known_tasks():
        if task.backend == backend.alias:
            yield task.module_path, task
    for old, new in backend.renamed.items():
        if (task := import_task(new)) is not None:
            yield old, task


def _origin(task: Task) -> Origin:
    code = task.func.__code__
    return Origin("code", Path(code.co_filename), code.co_firstlineno)
