"""The app."""

from __future__ import annotations

import sys
from typing import Any

import psycopg
from django.apps import AppConfig
from django.core.management.base import CommandError
from django.db.models.signals import pre_migrate

from pgrouse import schema_name, session_settings
from pgrouse.client.apply import policy_change
from pgrouse.contrib.django import project
from pgrouse.handlers.declaration.discovery import with_declared
from pgrouse.install import schema


def install_schema(using: str = "default", verbosity: int = 1, **_: Any) -> None:
    """Do what `pgrouse migrate` does, before the migrations of the project: install the schema, apply policies.

    For the signal pre_migrate. Nothing is done with PGROUSE = {"migrate": False}, in other databases, and where
    everything is up to date. So a role that may not change the schema can migrate the project.

    Raises:
        CommandError: this role may not do that.
        SchemaMismatch: the schema is newer than this version.
    """
    if using != project.alias() or not project.option("migrate", True):
        return
    try:
        with session_settings.set_up(psycopg.connect(project.dsn(), autocommit=True)) as conn:
            applied = [] if schema.is_up_to_date(conn) else schema.migrate(conn)
            _apply_policies(conn)
    except psycopg.errors.InsufficientPrivilege as error:
        raise CommandError(
            f"the schema {project.schema().name} cannot be installed or brought up to date by this role "
            f"({error.diag.message_primary}): run "
            '`pgrouse migrate` as its owner, and set PGROUSE = {"migrate": False} here'
        ) from error
    if applied and verbosity >= 1:
        sys.stdout.write(f"The schema {project.schema().name}, of pgrouse, was brought up to date.\n")


def _apply_policies(conn: psycopg.Connection[Any]) -> None:
    config = with_declared(project.load_config())
    if config.database.apply_policies != "never" and policy_change.differences(conn, config.policies):
        policy_change.apply(conn, config.policies)


class PgrouseConfig(AppConfig):
    """The app `pgrouse`."""

    name = "pgrouse.contrib.django"
    label = "pgrouse"
    verbose_name = "Messages"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Let calls mean the queue of the settings.

        Its schema is installed before the migrations of a project, which may publish messages.
        """
        schema_name.set_default(project.schema())
        pre_migrate.connect(install_schema, sender=self, dispatch_uid="pgrouse.install_schema")
