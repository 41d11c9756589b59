"""The backend of Django's tasks: `TASKS = {"default": {"BACKEND": "pgrouse.contrib.django.backend.PgrouseBackend"}}`.

A task is a message. It is published on Django's connection, so that `transaction.atomic()` covers it, and its result is
read from there.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone

from pgrouse.client.call import run
from pgrouse.client.queries.message import MessageRecord, find_message
from pgrouse.contrib.django import project
from pgrouse.contrib.django.queued_task import (
    QueuedTask,
    find_known_task,
    import_task,
    path_and_queue,
    to_level,
    topic_of,
)
from pgrouse.contrib.django.task_api import (
    DEFAULT_TASK_PRIORITY,
    BaseTaskBackend,
    InvalidTask,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_enqueued,
)
from pgrouse.contrib.django.task_result import PRIORITY, RUN_AFTER, to_result
from pgrouse.errors import InvalidMessage
from pgrouse.publishing.new_message import MAX_ID, TOPIC, NewMessage, PublishOptions, to_columns
from pgrouse.publishing.publish import publish

QUEUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
# A message that was redriven so often in a row is not looked for any further.
MAX_REDRIVES = 100


class PgrouseBackend(BaseTaskBackend):
    """Enqueues tasks as messages. A daemon processes them: `manage.py pgrouse run`.

    OPTIONS:
        renamed: paths of functions that were renamed, `{"shop.tasks.old": "shop.tasks.new"}`: what was enqueued under
            the old one is processed, and its result is found.
    """

    task_class = QueuedTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self.renamed: dict[str, str] = self.options.get("renamed", {})
        wrong = [name for name in self.queues if not QUEUE.fullmatch(name)]
        if wrong or not self.queues:
            raise ImproperlyConfigured(
                f'TASKS["{alias}"]["QUEUES"] has to name the queues, each with A-Z a-z 0-9 . _ - only'
                + (f"; {wrong[0]!r} is none" if wrong else "")
            )

    def validate_task(self, task: Task) -> None:
        """Check that a task can be enqueued.

        Raises:
            InvalidTask: says why not.
        """
        super().validate_task(task)
        topic = topic_of(task.module_path, task.queue_name)
        if not TOPIC.fullmatch(topic):
            raise InvalidTask(
                f"{topic!r:.250} is no topic: a module, its function and the queue have at most 200 letters and "
                "digits of ASCII, and _"
            )
        if isinstance(task, QueuedTask):
            _check_own_settings(task)

    def enqueue(self, task: Task, args: Any, kwargs: Any) -> TaskResult:
        """Publish a message for the task, in the transaction of Django's connection.

        Raises:
            InvalidTask, InvalidMessage: this cannot be enqueued.
            PublishRejected: a policy of its topic is against it.
        """
        self.validate_task(task)
        result = TaskResult(
            task=task,
            id="",
            status=TaskResultStatus.READY,
            enqueued_at=None,
            started_at=None,
            last_attempted_at=None,
            finished_at=None,
            args=args,
            kwargs=kwargs,
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        payload = {"args": result.args, "kwargs": result.kwargs}
        topic = topic_of(task.module_path, task.queue_name)
        message_id = int(publish(project.connection(), topic, payload, **_options(task)))
        # 0: the topic is full, and drops what is published.
        object.__setattr__(result, "id", str(message_id))
        object.__setattr__(result, "enqueued_at", timezone.now())
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> TaskResult:
        """Return what became of a task. One that was redriven goes on under the id that it had first.

        Raises:
            TaskResultDoesNotExist: no task has this id; or nothing of it is kept, or its function is not there any
                more.
        """
        record = self._find(result_id)
        path, queue = path_and_queue(record.original_topic or record.topic)
        task = self._task(path) if queue in self.queues else None
        if task is None:
            raise TaskResultDoesNotExist(
                f"message {result_id} is of topic {record.topic}, which is no task in a queue of this project: "
                "tasks are in the module `tasks` of an "
                f"installed app; if the function was renamed, add {path!r} to "
                f'TASKS["{self.alias}"]["OPTIONS"]["renamed"]'
            )
        return to_result(record, result_id, task, queue, self.alias)

    def _task(self, path: str) -> Task | None:
        """Return the task of a path that a message names.

        It is one of the project, or the one that the settings name as its new name.
        """
        new = self.renamed.get(path)
        return find_known_task(path) if new is None else import_task(new)

    def _find(self, result_id: str) -> MessageRecord:
        try:
            message_id = int(result_id)
        except ValueError:
            message_id = 0
        record = _read(message_id) if 0 < message_id <= MAX_ID else None
        for _ in range(MAX_REDRIVES):
            if record is None or record.redriven_as is None:
                break
            record = _read(record.redriven_as) or record
        if record is None:
            raise TaskResultDoesNotExist(f"there is no message {result_id!r:.50}: or nothing of it is kept")
        return record


def _read(message_id: int) -> MessageRecord | None:
    connection = project.connection()
    connection.ensure_connection()
    with connection.wrap_database_errors:
        return run(connection.connection, find_message(message_id))


def _options(task: Task) -> PublishOptions:
    options = task.publish_options() if isinstance(task, QueuedTask) else PublishOptions()
    headers: dict[str, Any] = {}
    if task.priority != DEFAULT_TASK_PRIORITY:
        options["priority"] = to_level(task.priority)
        headers[PRIORITY] = task.priority
    if task.run_after is not None:
        moment = _aware(task.run_after)
        options["available_at"] = moment
        headers[RUN_AFTER] = moment.isoformat()
    if headers:
        options["headers"] = headers
    return options


def _check_own_settings(task: QueuedTask) -> None:
    options = task.publish_options()
    if not options:
        return
    try:
        to_columns(NewMessage(topic=topic_of(task.module_path, task.queue_name), **options))
    except InvalidMessage as error:
        raise InvalidTask(str(error)) from None


def _aware(moment: datetime) -> datetime:
    return timezone.make_aware(moment) if timezone.is_naive(moment) else moment
