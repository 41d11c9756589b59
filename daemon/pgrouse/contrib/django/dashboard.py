"""The dashboard and the HTTP API below a path of the project, for the users of its admin.

application = with_dashboard(get_asgi_application(), "/queue")  # asgi.py
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.db import close_old_connections
from django.http import HttpRequest
from starlette.requests import Request
from starlette.routing import Mount, Router

from pgrouse.contrib.django import project
from pgrouse.web.access.caller import Caller, Role
from pgrouse.web.mounted_app import app

# Permissions of the app `pgrouse` that are needed for all that a role may do.
SEES = ("view_waitingmessage", "view_deadmessage")
OPERATES = ("cancel_waitingmessage", "retry_waitingmessage", "change_waitingmessage", "redrive_deadmessage")


def with_dashboard(application: Any, path: str = "/queue") -> Router:
    """Return an ASGI application with the dashboard below a path, and the project's everywhere else.

    Members of the staff who may view waiting and dead messages are viewers; with all permissions of the app they are
    operators. Others need a token. A user logs in by the admin.

    Args:
        application: that of the project.
        path: where the dashboard is.
    """
    queue = app(project.load_config(), authenticate=caller_of, allowed_hosts=_hosts())
    return Router([Mount(path, queue), Mount("/", application)])


async def caller_of(request: Request) -> Caller | None:
    """Return the user of Django's session; None: there is none who may see messages."""
    return await sync_to_async(_caller)(request.cookies.get(settings.SESSION_COOKIE_NAME))


def _caller(session_key: str | None) -> Caller | None:
    if not session_key:
        return None
    close_old_connections()
    try:
        user = _user(session_key)
        roles = _roles(user)
        return Caller(f"django:{user.get_username()}", roles) if roles else None
    finally:
        close_old_connections()


def _user(session_key: str) -> Any:
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(session_key)
    return get_user(request)


def _roles(user: Any) -> frozenset[Role]:
    if not (user.is_active and user.is_staff and user.has_perms([f"pgrouse.{each}" for each in SEES])):
        return frozenset()
    operates = user.has_perms([f"pgrouse.{each}" for each in OPERATES])
    return frozenset((Role.VIEWER, Role.OPERATOR) if operates else (Role.VIEWER,))


def _hosts() -> list[str]:
    """Return Django's ALLOWED_HOSTS as the dashboard has them: a name that begins with a dot is it and all below it."""
    found = ["localhost"] if settings.DEBUG else []
    for each in settings.ALLOWED_HOSTS:
        found += [each[1:], f"*{each}"] if each.startswith(".") else [each]
    return found
