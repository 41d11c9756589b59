"""Daemons of a project of Django: what they work, with which rights, and how they are started."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from conftest import ended, until
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.utils import ProgrammingError
from django.utils import timezone
from work import tasks

from pgrouse import publish
from pgrouse.client.client import Client
from pgrouse.contrib.django.task_api import TaskResultDoesNotExist, task_backends

BACKEND = task_backends["default"]


def value(statement, *values):
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return cursor.fetchone()[0]


def test_a_task_may_ask_for_a_retry(manage):
    with Client(connection.connection) as queue:
        queue.set_policy("work.tasks.ask_for_a_retry", max_attempts=2)
    manage.start("run")

    result = tasks.ask_for_a_retry.enqueue()

    until(lambda: (result.refresh(), result.errors)[1])
    assert (result.status, result.is_finished, result.errors[0].traceback) == ("READY", False, "later")


def test_a_cancelled_task_has_failed(manage):
    result = tasks.add.enqueue(1)
    Client(connection.connection).cancel([int(result.id)], "not wanted")

    result.refresh()

    assert (result.status, result.errors[0].exception_class) == ("FAILED", asyncio.CancelledError)
    assert result.errors[0].traceback == "cancelled: not wanted"


def test_enqueue_joins_the_transaction(manage):
    with transaction.atomic():
        undone = tasks.add_user.enqueue("anna")
        transaction.set_rollback(True)
    with pytest.raises(TaskResultDoesNotExist):
        BACKEND.get_result(undone.id)

    with transaction.atomic():
        done = tasks.add_user.enqueue("berta")
    manage.start("run")

    assert ended(done).return_value == "berta"
    assert list(User.objects.values_list("username", flat=True)) == ["berta"]


def test_priority_is_the_order_in_which_the_messages_of_a_task_run(manage, monkeypatch):
    # A slow worker releases what it has claimed ahead, and runs it later.
    monkeypatch.setenv("PGROUSE_WORKER__PREFETCH", "0")
    priorities = [0, -100, 100, -1, 1, 50]
    results = {each: tasks.clock.using(priority=each).enqueue() for each in priorities}

    manage.start("run", "--concurrency", "1")

    order = sorted(priorities, key=lambda each: ended(results[each]).return_value)
    assert order == sorted(priorities, reverse=True)
    assert tasks.clock.get_result(results[50].id).task.priority == 50


def test_a_worker_may_be_for_some_queues_only(manage):
    other, wanted = tasks.add.enqueue(1), tasks.report.enqueue()
    moved = tasks.add.using(queue_name="reports").enqueue(2)

    manage.start("--queue", "reports", "run")

    assert ended(wanted).return_value == "written"
    assert ended(moved).return_value == 2
    other.refresh()
    assert other.status == "READY"
    assert tasks.report.get_result(wanted.id).task == tasks.report
    assert value("SELECT topic FROM messages.message_archive WHERE id = %s", moved.id) == "reports:work.tasks.add"


def test_a_task_that_is_gone_waits_and_the_error_says_what_to_do(manage):
    queued = publish(connection, "work.tasks.gone", {"args": [], "kwargs": {}})

    with pytest.raises(TaskResultDoesNotExist, match=r'add \'work.tasks.gone\' to TASKS\["default"\]'):
        BACKEND.get_result(str(queued))


@pytest.fixture
def acting_as(manage):
    """`acting_as("messages_publisher")`: Django's connection has only the rights of that role."""

    def act(role):
        with connection.cursor() as cursor:
            cursor.execute(f"SET ROLE {role}")

    yield act
    with connection.cursor() as cursor:
        cursor.execute("RESET ROLE")


def test_a_publisher_enqueues_and_only_an_operator_sees_results(acting_as):
    acting_as("messages_publisher")
    queued = tasks.add.using(priority=5, run_after=timezone.now()).enqueue(1, b=2)
    with pytest.raises(ProgrammingError, match="permission denied"):
        tasks.add.get_result(queued.id)

    acting_as("messages_operator")
    assert tasks.add.get_result(queued.id).kwargs == {"b": 2}


def test_several_processes_and_a_reload(manage):
    assert manage("pgrouse", "migrate").returncode == 0
    fleet = manage.start("run", "--processes", "2", processes=2)
    assert ended(tasks.add.enqueue(1)).return_value == 1
    os.killpg(fleet.pid, signal.SIGTERM)
    assert fleet.wait(60) == 0

    single = manage.start("run")
    single.send_signal(signal.SIGHUP)
    until(lambda: "daemon.reload" in single.log.read_text() or single.log.read_text().count('"daemon.started"') == 2)
    assert "failed" not in single.log.read_text()
    manage.until_armed(single)
    assert ended(tasks.add.enqueue(2)).return_value == 2
