"""The app."""

from __future__ import annotations

from django.apps import AppConfig
from django.db.models.signals import pre_migrate

from pgrouse.contrib.django.migration import install_schema


class PgrouseConfig(AppConfig):
    """The app `pgrouse`."""

    name = "pgrouse.contrib.django"
    label = "pgrouse"
    verbose_name = "Messages"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Install the schema before the migrations of a project, which may publish messages."""
        pre_migrate.connect(install_schema, sender=self, dispatch_uid="pgrouse.install_schema")
