"""Handlers that use Django's connections, which live longer than one message."""

from __future__ import annotations

import os

import django.conf
from asgiref.sync import sync_to_async
from psycopg.conninfo import conninfo_to_dict

from pgrouse import Item

parts = conninfo_to_dict(os.environ["RUNS"])
names = {"NAME": "dbname", "HOST": "host", "PORT": "port", "USER": "user", "PASSWORD": "password"}
given = {name: parts[ours] for name, ours in names.items() if ours in parts}
django.conf.settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "CONN_MAX_AGE": 3600, **given}}, USE_TZ=True
)
django.setup()


def server_pid() -> int:
    """Return the process id of the server for the connection of this thread."""
    from django.db import connection  # noqa: PLC0415

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return cursor.fetchone()[0]


def in_thread(payload):
    return server_pid()


in_process = in_thread


async def on_the_loop(payload):
    return await sync_to_async(server_pid)()


def in_batch(items: list[Item]):
    for item in items:
        item.complete(server_pid())


async def in_async_batch(items: list[Item]):
    for item in items:
        item.complete(await sync_to_async(server_pid)())
