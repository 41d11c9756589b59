"""Messages in the admin: who may see and do what, and what becomes of it."""

from __future__ import annotations

import json

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.urls import reverse

from pgrouse import Defer, Retry, publish
from pgrouse.client.client import Client as Queue
from pgrouse.contrib.django.models import DeadMessage, WaitingMessage
from pgrouse.testing import drain

WAITING, DEAD = "waitingmessage", "deadmessage"
pytestmark = pytest.mark.django_db


def queue():
    connection.ensure_connection()
    return Queue(connection.connection)


def waiting(topic="job", payload=None, **options):
    return int(publish(connection, topic, payload or {"n": 1}, **options))


def fail(payload):
    raise ValueError("no such thing")


def fail_for_now(payload):
    return Retry("1h")


def defer(payload):
    return Defer("1h")


def wait_for_payment(payload, ctx):
    ctx.wait_for_event("paid")


def dead(topic="job", payload=None):
    message_id = waiting(topic, payload)
    drain(connection.connection, {topic: fail})
    return message_id


def may(user, *permissions):
    names = [name for name in permissions if name != "staff"]
    found = Permission.objects.filter(content_type__app_label="pgrouse", codename__in=names)
    assert found.count() == len(names)
    user.user_permissions.set(found)


@pytest.fixture
def someone(client):
    """A user of the admin without rights."""
    user = User.objects.create_user("someone", is_staff=True)
    client.force_login(user)
    return user


def listed(client, model, **query):
    page = client.get(reverse(f"admin:pgrouse_{model}_changelist"), query)
    assert page.status_code == 200
    return [each.pk for each in page.context["cl"].result_list]


def act(client, model, action, *ids):
    data = {"action": action, "_selected_action": ids}
    page = client.post(reverse(f"admin:pgrouse_{model}_changelist"), data, follow=True)
    return [str(each) for each in page.context["messages"]]


def form(client, model, message_id, **changed):
    url = reverse(f"admin:pgrouse_{model}_change", args=[message_id])
    shown = client.get(url).context["adminform"].form
    data = {name: shown.initial.get(name, "") for name in shown.fields}
    page = client.post(url, data | changed, follow=True)
    errors = page.context.get("errors", [])
    return [str(each) for each in page.context["messages"]], errors


def test_the_lists_show_what_waits_and_what_is_dead(admin_client):
    gone, one, other = dead(), waiting(), waiting("mail", delay="1h")

    assert listed(admin_client, WAITING) == [other, one]
    assert listed(admin_client, WAITING, topic="mail") == [other]
    assert listed(admin_client, WAITING, state="ready") == [one]
    assert listed(admin_client, DEAD) == [gone]
    assert listed(admin_client, DEAD, state="expired") == []


def test_a_message_is_called_what_the_queue_calls_it(admin_client):
    failed, deferred, waits = (waiting(topic, max_attempts=5) for topic in ("fails", "defers", "waits"))
    drain(connection.connection, {"fails": fail_for_now, "defers": defer, "waits": wait_for_payment})
    delayed, ready = waiting(delay="1h"), waiting()

    page = admin_client.get(reverse(f"admin:pgrouse_{WAITING}_changelist"))

    changelist = page.context["cl"]
    shown = {each.pk: changelist.model_admin.state(each) for each in changelist.result_list}
    assert shown == {failed: "retrying", deferred: "delayed", waits: "waiting", delayed: "delayed", ready: "ready"}
    assert shown == {each: queue().message(each).state for each in shown}


def test_the_search_finds_ids_keys_and_errors(admin_client):
    gone, keyed = dead(), waiting(key="k-7")

    assert listed(admin_client, WAITING, q="k-7") == [keyed]
    assert listed(admin_client, WAITING, q=str(keyed)) == [keyed]
    assert listed(admin_client, DEAD, q="SUCH thing") == [gone]
    assert listed(admin_client, DEAD, q="another") == []
    assert listed(admin_client, DEAD, q="9" * 30) == []


def test_contents_are_shown(admin_client, someone, client):
    message_id = waiting(payload={"name": "<b>Ä</b>", "n": [1, 2]}, headers={"from": "web"})

    for each in (admin_client, client):
        may(someone, "view_waitingmessage")
        page = each.get(reverse("admin:pgrouse_waitingmessage_change", args=[message_id])).content.decode()
        assert "&lt;b&gt;Ä&lt;/b&gt;" in page
        assert "from" in page


def test_dead_messages_are_redriven(admin_client):
    ids = [dead(), dead(payload={"n": 2})]

    said = act(admin_client, DEAD, "redrive", *ids)

    assert said == ["2 messages redriven."]
    assert WaitingMessage.objects.count() == 2
    assert all(DeadMessage.objects.get(pk=each).redriven_as for each in ids)
    assert act(admin_client, DEAD, "redrive", ids[0]) == [
        "0 messages redriven.",
        "1 message left as it was.",
        "1 message: redriven before.",
    ]


def test_messages_are_cancelled_and_the_audit_has_the_name(admin_client):
    one, other = waiting(), waiting()

    said = act(admin_client, WAITING, "cancel", one)

    assert said == ["1 message cancelled."]
    assert listed(admin_client, WAITING) == [other]
    assert queue().message(one).error == "cancelled: by admin in the admin"
    with connection.cursor() as cursor:
        cursor.execute("SELECT actor FROM messages.audit WHERE action = 'cancel'")
        assert cursor.fetchall() == [("django:admin",)]
    assert LogEntry.objects.get().object_id == str(one)


def test_messages_that_wait_for_their_time_are_retried_now(admin_client):
    message_id = waiting(delay="1h")
    assert queue().message(message_id).state == "delayed"

    assert act(admin_client, WAITING, "retry_now", message_id) == ["1 message made ready."]

    assert queue().message(message_id).state == "ready"


def test_a_waiting_message_is_edited(admin_client):
    message_id = waiting(payload={"n": 1.5})

    said, _ = form(admin_client, WAITING, message_id, payload='{"n": 2, "text": "Ä"}')

    assert "was changed successfully" in said[0]
    assert queue().message(message_id).payload == {"n": 2, "text": "Ä"}
    assert queue().message(message_id).headers is None


def test_what_was_not_changed_is_not_written(admin_client):
    message_id = waiting(payload={"n": 1, "deep": {"x": [1, 2]}})
    before = queue().message(message_id).payload_json
    unix = json.dumps(json.loads(before), indent=2)

    said, _ = form(admin_client, WAITING, message_id, payload=unix.replace("\n", "\r\n"))

    assert said == ["Nothing was changed."]


def test_an_edit_of_what_has_changed_meanwhile_is_refused(admin_client):
    message_id = waiting()

    said, _ = form(admin_client, WAITING, message_id, payload='{"n": 2}', seen="0" * 32)

    assert said == ["The message was not edited: someone else has changed it since it was shown."]
    assert queue().message(message_id).payload == {"n": 1}
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize(("payload", "headers"), [("{", ""), ('{"n": 1}', "[1]")])
def test_what_is_no_json_is_refused(admin_client, payload, headers):
    message_id = waiting()

    _, errors = form(admin_client, WAITING, message_id, payload=payload, headers=headers)

    assert len(errors) == 1
    assert queue().message(message_id).payload == {"n": 1}


def test_an_error_of_the_server_is_shown(admin_client):
    queue().set_policy("job", max_payload_bytes=100)
    message_id = waiting()

    said, _ = form(admin_client, WAITING, message_id, payload=json.dumps("x" * 200))

    assert "100" in said[0]
    assert queue().message(message_id).payload == {"n": 1}


def test_a_dead_message_is_redriven_with_other_contents(admin_client):
    message_id = dead(payload={"n": 1, "wrong": True})

    form(admin_client, DEAD, message_id, payload='{"n": 2}')

    assert queue().message(DeadMessage.objects.get().redriven_as).payload == {"n": 2}
    page = admin_client.get(reverse("admin:pgrouse_deadmessage_change", args=[message_id]))
    assert b"Redrive with" not in page.content, "it can be put back once"


def test_a_dead_message_is_redriven_as_it_is_by_its_page(admin_client):
    message_id = dead()

    form(admin_client, DEAD, message_id)

    assert queue().message(DeadMessage.objects.get().redriven_as).payload == {"n": 1}


def test_a_body_is_told(admin_client):
    message_id = int(publish(connection, "job", body=b"12345"))

    page = admin_client.get(reverse("admin:pgrouse_waitingmessage_change", args=[message_id]))

    assert b"a body of 5 bytes" in page.content


@pytest.mark.parametrize("model", [WAITING, DEAD])
def test_without_a_permission_there_is_nothing(client, someone, model):
    assert client.get(reverse(f"admin:pgrouse_{model}_changelist")).status_code == 403
    assert client.get(reverse(f"admin:pgrouse_{model}_change", args=[dead()])).status_code in (302, 403)


@pytest.mark.parametrize(
    ("permission", "actions"),
    [
        ("view_waitingmessage", set()),
        ("cancel_waitingmessage", {"cancel"}),
        ("retry_waitingmessage", {"retry_now"}),
        ("change_waitingmessage", set()),
    ],
)
def test_each_action_needs_its_permission(client, someone, permission, actions):
    message_id = waiting(delay="1h")
    may(someone, *{"view_waitingmessage", permission})

    page = client.get(reverse("admin:pgrouse_waitingmessage_changelist"))
    offered = {name for name, _ in page.context["action_form"].fields["action"].choices if name} if actions else set()
    assert offered == actions
    for action in {"cancel", "retry_now"} - actions:
        act(client, WAITING, action, message_id)
    assert queue().message(message_id).state == "delayed"
    url = reverse("admin:pgrouse_waitingmessage_change", args=[message_id])
    changed = client.post(url, {"payload": '{"n": 2}', "headers": "", "seen": ""}).status_code
    assert (changed == 302) == (permission == "change_waitingmessage")
    assert queue().message(message_id).payload == {"n": 2 if changed == 302 else 1}


def test_a_redrive_needs_its_permission(client, someone):
    message_id = dead()
    may(someone, "view_deadmessage")

    act(client, DEAD, "redrive", message_id)
    assert client.post(reverse("admin:pgrouse_deadmessage_change", args=[message_id]), {}).status_code == 403
    assert DeadMessage.objects.get().redriven_as is None

    may(someone, "redrive_deadmessage")
    act(client, DEAD, "redrive", message_id)
    assert DeadMessage.objects.get().redriven_as is not None


@pytest.mark.parametrize("model", [WAITING, DEAD])
def test_nothing_is_added_or_deleted(admin_client, model):
    message_id = waiting() if model == WAITING else dead()

    assert admin_client.get(reverse(f"admin:pgrouse_{model}_add")).status_code == 403
    assert (
        admin_client.post(reverse(f"admin:pgrouse_{model}_delete", args=[message_id]), {"post": "yes"}).status_code
        == 403
    )


def test_a_list_reads_a_bounded_part_of_a_big_queue(admin_client, monkeypatch):
    monkeypatch.setattr("pgrouse.contrib.django.admin.LISTED", 5)
    for _ in range(12):
        waiting()

    assert len(listed(admin_client, WAITING)) == 5
    data = {"action": "cancel", "_selected_action": ["1"], "select_across": "1"}
    admin_client.post(reverse("admin:pgrouse_waitingmessage_changelist"), data)
    assert WaitingMessage.objects.count() == 7
