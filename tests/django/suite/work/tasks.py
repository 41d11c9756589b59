"""The tasks of these tests."""

from __future__ import annotations

import asyncio
import os
import threading
import time

from django.contrib.auth.models import User
from django.db import connection

from pgrouse import Retry
from pgrouse.contrib.django.task_api import task


@task
def add(a, b=0):
    return a + b


@task
async def add_async(a, b=0):
    await asyncio.sleep(0)
    return a + b


@task
def add_user(name):
    return User.objects.create(username=name).username


@task
async def count_users():
    return await User.objects.acount()


@task
def fail(text):
    raise LookupError(text)


@task(takes_context=True)
def fail_twice(context):
    if context.attempt < 3:
        raise ValueError(f"attempt {context.attempt}")
    return [context.attempt, len(context.task_result.worker_ids), context.task_result.id]


@task
def no_json():
    return object()


@task
def ask_for_a_retry():
    raise Retry("1h", reason="later")


@task
def child():
    return [User.objects.count(), threading.current_thread() is threading.main_thread(), os.getpid()]


@task
def slow(seconds):
    time.sleep(seconds)


@task(priority=50, queue_name="reports")
def report():
    return "written"


@task
def clock():
    return time.monotonic()


@task
def count_statements():
    User.objects.count()
    return len(connection.queries_log)
