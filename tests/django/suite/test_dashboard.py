"""The dashboard below a path of the project: for which of its users."""

from __future__ import annotations

import asyncio
import gc

import httpx
import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Permission, User
from django.core.asgi import get_asgi_application
from django.db import connection, connections

from pgrouse import publish
from pgrouse.client.client import Client
from pgrouse.contrib.django.dashboard import with_dashboard

# The loops of these tests end while the pool still opens connections.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
ALL = {
    "view_waitingmessage",
    "view_deadmessage",
    "cancel_waitingmessage",
    "retry_waitingmessage",
    "change_waitingmessage",
    "redrive_deadmessage",
}
CANCEL = "/queue/v1/messages/cancel"
VIEW = {"view_waitingmessage", "view_deadmessage"}


def answers(client, *requests):
    """Return the answers to requests with the cookies of a client, of the application under an event loop."""
    cookies = {name: each.value for name, each in client.cookies.items()}

    async def send():
        transport = httpx.ASGITransport(app=with_dashboard(get_asgi_application(), "/queue"))
        async with httpx.AsyncClient(transport=transport, base_url="http://shop.test", cookies=cookies) as http:
            found = [await http.request(method, path, **rest) for method, path, rest in requests]
        await sync_to_async(connections.close_all)()
        return found

    found = asyncio.run(send())
    gc.collect()  # what the loop left open is reported here, and not at the end of all tests
    return found


def login(client, *permissions, **user):
    found = User.objects.create_user("anna", **user)
    found.user_permissions.set(Permission.objects.filter(content_type__app_label="pgrouse", codename__in=permissions))
    client.force_login(found)


@pytest.mark.parametrize(
    ("permissions", "user", "sees", "operates"),
    [
        (ALL, {"is_staff": True}, 200, 200),
        (VIEW, {"is_staff": True}, 200, 403),
        (VIEW - {"view_deadmessage"}, {"is_staff": True}, 401, 401),
        (ALL, {"is_staff": False}, 401, 401),
        (ALL, {"is_staff": True, "is_active": False}, 401, 401),
    ],
)
def test_users_of_the_admin_have_what_their_permissions_give(manage, client, permissions, user, sees, operates):
    login(client, *permissions, **user)
    message_id = int(publish(connection, "job", {"n": 1}))

    seen, done = answers(
        client,
        ("GET", f"/queue/v1/messages/{message_id}", {}),
        ("POST", CANCEL, {"headers": {"sec-fetch-site": "same-origin"}, "json": {"ids": [message_id]}}),
    )

    assert (seen.status_code, done.status_code) == (sees, operates)
    assert (Client(connection.connection).message(message_id).state == "cancelled") == (operates == 200)


def test_a_request_of_another_site_is_refused(manage, client):
    login(client, *ALL, is_staff=True)
    message_id = int(publish(connection, "job", {"n": 1}))
    headers = {"sec-fetch-site": "cross-site", "origin": "https://evil.test"}

    (done,) = answers(client, ("POST", CANCEL, {"headers": headers, "json": {"ids": [message_id]}}))

    assert done.status_code == 403
    assert Client(connection.connection).message(message_id).state == "ready"


def test_pages_are_below_the_path_and_the_project_everywhere_else(manage, client):
    login(client, *VIEW, is_staff=True)

    page, admin, other = answers(client, ("GET", "/queue/", {}), ("GET", "/admin/", {}), ("GET", "/nothing", {}))

    assert page.status_code == 200
    assert '"/queue/topics"' in page.text
    assert (admin.status_code, "Django administration" in admin.text) == (200, True)
    assert other.status_code == 404


def test_without_a_session_there_is_no_way_in(manage, client):
    (page,) = answers(client, ("GET", "/queue/v1/topics", {}))

    assert page.status_code == 401
