"""The app."""

from __future__ import annotations

import sys
from typing import Any

import psycopg
from django.apps import AppConfig
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError
from django.db.models.signals import pre_migrate

from pgrouse.client.apply import configuration_change
from pgrouse.config.config import Config
from pgrouse.contrib.django import project
from pgrouse.database import schema_name, session_settings
from pgrouse.database.install import schema
from pgrouse.errors import PgrouseError
from pgrouse.handlers.declaration.discovery import with_declared


def install_schema(using: str = "default", verbosity: int = 1, **_: Any) -> None:
    """Do what `pgrouse migrate` does, before the migrations of the project.

    Install the schema, and apply the policies and schedules of the settings and of the code.

    For the signal pre_migrate. Nothing is done with PGROUSE = {"migrate": False}, in other databases, and where
    everything is up to date. So a role that may not change the schema can migrate the project.

    Raises:
        CommandError: this role may not do that, the configuration is wrong, the database is no PostgreSQL, or the
            schema is newer than this version.
    """
    if using != project.alias() or not project.option("migrate", True):
        return
    try:
        done = _migrate(_config_to_apply())
    except psycopg.errors.InsufficientPrivilege as error:
        raise CommandError(
            f"this role may not bring the schema {project.schema().name} up to date, or not write its policies and "
            f"schedules ({error.diag.message_primary}): run "
            '`pgrouse migrate` as its owner, and set PGROUSE = {"migrate": False} here'
        ) from error
    except (PgrouseError, ImproperlyConfigured) as error:
        raise CommandError(str(error)) from error
    if verbosity >= 1:
        sys.stdout.writelines(f"{each}\n" for each in done)


def _config_to_apply() -> Config | None:
    """Return the configuration with what its modules declare; None: `migrate` does not apply it."""
    config = project.load_config()
    return None if config.database.apply_policies == "never" else with_declared(config)


def _migrate(config: Config | None) -> list[str]:
    """Bring the schema up to date, and apply a configuration; return what was done, in sentences."""
    with session_settings.set_up(psycopg.connect(project.dsn(), autocommit=True)) as conn:
        applied = [] if schema.is_up_to_date(conn) else schema.migrate(conn)
        changes = [] if config is None else configuration_change.apply(conn, config)
    done = [f"The schema {project.schema().name}, of pgrouse, was brought up to date."] if applied else []
    return [*done, *map(str, changes)]


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
