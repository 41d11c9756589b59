"""The Client on Django's connection: what it does belongs to the transaction of the request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import transaction

from pgrouse.client.client import Client
from pgrouse.contrib.django import project


@contextmanager
def queue_client(actor: str = "") -> Iterator[Client]:
    """Yield a client in a transaction of Django, or a savepoint of the one that is open.

    Errors of the server are Django's.

    Args:
        actor: whose name the audit log gets; that of the database user unless given.
    """
    connection = project.connection()
    with transaction.atomic(using=connection.alias):
        connection.ensure_connection()
        with connection.wrap_database_errors, connection.cursor() as cursor:
            cursor.execute("SELECT pg_catalog.set_config('messages.actor', %s, true)", [actor])
            yield Client(connection.connection)
