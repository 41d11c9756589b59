"""Handlers of tasks, by name: `pgrouse.contrib.django.handlers:task.shop.tasks.send_receipt`.

A process that imports this module first (a child, or a daemon that `manage.py` did not start) sets Django up by
DJANGO_SETTINGS_MODULE.
"""

from __future__ import annotations

from typing import Any

import django
from django.apps import apps

if not apps.ready:
    django.setup()

from pgrouse.contrib.django.queued_task import import_task
from pgrouse.contrib.django.task_run import handler_of
from pgrouse.errors import ConfigError


class TaskPath:
    """The beginning of the path of a task; its last attribute is the handler."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def __getattr__(self, name: str) -> Any:
        """Return the handler of the task that this is the path of; else a longer path."""
        path = ".".join((*self._names, name))
        try:
            found = import_task(path)
        except Exception as error:
            raise ConfigError(f"the module of task {path} cannot be imported: {error}") from error
        return TaskPath(*self._names, name) if found is None else handler_of(found)


task = TaskPath()
