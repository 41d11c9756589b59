"""Django's tasks on the queue: real daemons work them."""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import timedelta

import pytest
from asgiref.sync import sync_to_async
from conftest import ended, until
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, transaction
from django.utils import timezone
from work import tasks

from pgrouse import publish
from pgrouse.client.client import Client
from pgrouse.contrib.django.backend import PgrouseBackend
from pgrouse.contrib.django.queued_task import to_level
from pgrouse.contrib.django.task_api import (
    InvalidTask,
    TaskResultDoesNotExist,
    task,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from pgrouse.contrib.django.testing import run_tasks

BACKEND = task_backends["default"]


def value(statement, *values):
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return cursor.fetchone()[0]


@pytest.mark.parametrize("each", [tasks.add, tasks.add_async])
def test_a_task_is_worked_and_returns_its_value(worker, each):
    before = timezone.now() - timedelta(seconds=5)

    queued = each.enqueue(2, b=3)

    assert (queued.status, queued.args, queued.kwargs) == ("READY", [2], {"b": 3})
    result = ended(each.get_result(queued.id))
    assert (result.status, result.return_value, result.errors) == ("SUCCESSFUL", 5, [])
    assert (result.args, result.kwargs, result.backend, result.attempts) == ([2], {"b": 3}, "default", 1)
    assert str(worker.pid) in result.worker_ids[0]
    assert before < result.enqueued_at <= result.started_at == result.last_attempted_at <= result.finished_at
    assert result.task == each


def test_tasks_use_the_models(worker):
    assert ended(tasks.add_user.enqueue("anna")).return_value == "anna"
    assert ended(tasks.count_users.enqueue()).return_value == User.objects.count() >= 1


def test_a_task_that_fails_says_by_what(worker):
    result = ended(tasks.fail.enqueue("no such thing"))

    assert result.status == "FAILED"
    (error,) = result.errors
    assert error.exception_class is LookupError
    assert "no such thing" in error.traceback
    assert "raise LookupError(text)" in error.traceback
    with pytest.raises(ValueError, match="Task failed"):
        _ = result.return_value


def test_a_value_that_is_no_json_fails_the_task(worker):
    result = ended(tasks.no_json.enqueue())

    assert result.status == "FAILED"
    assert "Unsupported type" in result.errors[0].traceback


def test_a_task_may_run_in_a_child_process(worker):
    users, is_main, pid = ended(tasks.child.enqueue()).return_value

    assert (users, is_main) == (User.objects.count(), True)
    assert pid != worker.pid


def test_the_async_ways_do_the_same(worker):
    def close():
        connection.close()

    async def work():
        queued = await tasks.add.aenqueue(4, 5)
        result = await tasks.add.aget_result(queued.id)
        while not result.is_finished:
            await asyncio.sleep(0.01)
            await result.arefresh()
        # The connection of asyncio's thread.
        await sync_to_async(close)()
        return result

    assert asyncio.run(work()).return_value == 9


def test_a_task_has_settings_of_its_own_instead_of_its_topics():
    backoff = {"kind": "constant", "base": "1m"}
    own = tasks.add.using(max_attempts=3, timeout="30s", backoff=backoff, retention="90d", priority=10)

    # Before it commits, no worker sees it.
    with transaction.atomic():
        queued = own.using(timeout=timedelta(minutes=1)).enqueue(2, 3)
        row = json.loads(value("SELECT to_jsonb(m)::text FROM messages.message AS m WHERE m.id = %s", queued.id))

    assert (row["max_attempts"], row["timeout"], row["retention"]) == (3, "00:01:00", "2160:00:00")
    assert (row["backoff"], row["priority"]) == (backoff, to_level(10))
    assert queued.task.timeout == timedelta(minutes=1)
    assert tasks.add.get_result(queued.id).task == queued.task


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"timeout": "soon"}, "timeout"),
        ({"retention": "1s"}, "retention"),
        ({"backoff": {"base": "1m"}}, "kind is missing"),
        ({"max_attempts": -1}, "max_attempts"),
    ],
)
def test_settings_that_a_message_cannot_have_are_refused_before_it_is_enqueued(wrong, problem):
    with pytest.raises(InvalidTask, match=problem):
        tasks.add.using(**wrong)


def test_run_after_is_when_a_task_may_run_first(worker):
    moment = timezone.now() + timedelta(seconds=1)

    later = tasks.add.using(run_after=timezone.now() + timedelta(hours=1)).enqueue(1)
    soon = tasks.add.using(run_after=moment).enqueue(1)

    assert soon.task.run_after == moment
    assert ended(soon).started_at >= moment - timedelta(seconds=0.1)
    later.refresh()
    assert (later.status, later.started_at) == ("READY", None)
    assert tasks.add.get_result(soon.id).task.run_after == moment


def test_priorities_become_ten_levels_in_their_order():
    levels = [to_level(priority) for priority in range(-100, 101)]

    assert levels == sorted(levels, reverse=True)
    assert set(levels) == set(range(10))
    assert to_level(0) == 5


def test_a_task_that_was_renamed_is_worked_and_found(worker):
    queued = publish(connection, "work.tasks.old_name", {"args": [1, 2], "kwargs": {}})

    result = ended(BACKEND.get_result(str(queued)))

    assert result.return_value == 3
    assert result.task == tasks.add


def test_a_payload_of_another_form_is_rejected(worker):
    queued = publish(connection, "work.tasks.add", {"args": "no list"})

    result = ended(BACKEND.get_result(str(queued)))

    assert (result.status, result.errors[0].exception_class.__name__) == ("FAILED", "Reject")


def test_a_task_goes_on_under_its_id_when_it_is_redriven(worker):
    result = ended(tasks.fail.enqueue("once"))
    client = Client(connection.connection)

    client.redrive_edited(int(result.id), payload={"args": [40, 2], "kwargs": {}}, topic="work.tasks.add", merge=False)

    again = BACKEND.get_result(result.id)
    assert (ended(again).return_value, again.id) == (42, result.id)


@pytest.mark.django_db
@pytest.mark.parametrize("wrong", ["", "0", "7", "-1", "x", "9" * 30, "1.5"])
def test_no_result_is_an_error_of_its_own(wrong):
    with pytest.raises(TaskResultDoesNotExist):
        BACKEND.get_result(wrong)


@pytest.fixture
def script(tmp_path, monkeypatch):
    """The name of a module that can be imported, and that is no part of the project."""
    (tmp_path / "planted_script.py").write_text("raise SystemExit('it runs')")
    monkeypatch.syspath_prepend(tmp_path)
    yield "planted_script"
    assert "planted_script" not in sys.modules


@pytest.mark.django_db
@pytest.mark.parametrize("queue", ["", "reports:"])
def test_no_module_is_imported_because_a_topic_names_it(script, queue):
    queued = publish(connection, f"{queue}{script}.run", {"args": [], "kwargs": {}})

    with pytest.raises(TaskResultDoesNotExist, match=rf"topic {queue}{script}\.run, which is no task"):
        BACKEND.get_result(str(queued))


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["planted_script", "planted_script.Gone", "work.tasks.os.Gone", "work.tasks.add"])
def test_no_module_is_imported_because_the_text_of_an_error_names_it(script, name):
    queued = tasks.fail.enqueue(f"1\nTraceback (most recent call last):\n{name}.Error: it is late")
    run_tasks()

    (error,) = BACKEND.get_result(queued.id).errors

    with pytest.raises(ImportError, match="is no exception of a module that is imported here"):
        _ = error.exception_class


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("topic", "headers"),
    [
        ("work.tasks.add", {"django-priority": "high", "django-run-after": "soon"}),
        ("work.tasks.add", {"django-priority": 101, "django-run-after": 5}),
        ("work.tasks.add", {"django-priority": [True], "django-run-after": "2026-01-01"}),
        ("no_queue:work.tasks.add", {}),
    ],
)
def test_a_message_that_no_task_was_enqueued_as_has_a_result_or_none(topic, headers):
    queued = publish(connection, topic, {"args": 1}, headers=headers)

    try:
        assert BACKEND.get_result(str(queued)).task.priority == 0
    except TaskResultDoesNotExist:
        assert topic.startswith("no_queue:")


@pytest.mark.django_db
def test_what_is_no_json_is_refused():
    with pytest.raises(TypeError):
        tasks.add.enqueue(object())
    assert value("SELECT count(*) FROM messages.message") == 0


def test_what_cannot_be_a_topic_is_refused():
    def far(): ...

    far.__module__, far.__qualname__ = "m" * 200, "far"
    with pytest.raises(InvalidTask, match="is no topic"):
        task(far)


@pytest.mark.parametrize("queues", [[], ["a b"], ["a:b"]])
def test_queues_have_to_be_named(queues):
    with pytest.raises(ImproperlyConfigured, match="QUEUES"):
        PgrouseBackend("default", {"QUEUES": queues})


@pytest.mark.django_db
def test_signals_are_sent():
    seen = []
    receivers = {
        name: lambda name=name, task_result=None, **_: seen.append((name, task_result.id, str(task_result.status)))
        for name in ("enqueued", "started", "finished")
    }
    signals = {"enqueued": task_enqueued, "started": task_started, "finished": task_finished}
    for name, each in signals.items():
        each.connect(receivers[name])

    good, bad, again = tasks.add.enqueue(1), tasks.fail.enqueue("x"), tasks.fail_twice.enqueue()
    run_tasks()

    assert [each[1:] for each in seen if each[0] == "enqueued"] == [(each.id, "READY") for each in (good, bad, again)]
    assert sum(each == ("started", again.id, "RUNNING") for each in seen) >= 1
    ends = [each[1:] for each in seen if each[0] == "finished"]
    assert ends[:2] == [(good.id, "SUCCESSFUL"), (bad.id, "FAILED")]
    assert ends[2:] in ([], [(again.id, "SUCCESSFUL")]), "an attempt that is followed by another is not the end"
    for name, each in signals.items():
        each.disconnect(receivers[name])


@pytest.mark.parametrize("topic", ["plain", "plain.child"])
def test_other_handlers_of_the_project_are_found(worker, topic):
    queued = publish(connection, topic, "hello")

    statement = "SELECT max(output::text) FROM messages.message_archive WHERE id = %s"
    assert until(lambda: value(statement, int(queued))) == f'["hello", {User.objects.count()}]'


def test_a_task_is_tried_again_as_its_policy_says(worker):
    result = ended(tasks.fail_twice.enqueue())

    assert (result.status, result.attempts) == ("SUCCESSFUL", 3)
    assert result.return_value == [3, 3, result.id]
    assert [(each.exception_class, each.traceback.splitlines()[-1]) for each in result.errors] == [
        (ValueError, "ValueError: attempt 1"),
        (ValueError, "ValueError: attempt 2"),
    ]


def test_a_task_that_overruns_its_time_has_a_timeout_error(worker):
    result = ended(tasks.slow.enqueue(3))

    assert (result.status, result.errors[0].exception_class) == ("FAILED", TimeoutError)
