"""A handler next to the tasks."""

from __future__ import annotations

from django.contrib.auth.models import User


def plain(payload, ctx):
    return [payload, User.objects.count()]
