"""Faults that stop pg_cron as a whole are found, with their fix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pgrouse.database.install import pg_cron as cron
from pgrouse.database.install import schema
from pgrouse.database.install.pg_cron import CronFinding, CronFindingKind, CronUnavailable
from tests.cron.minute import until_its_middle
from tests.server.postgres import Postgres

Eventually = Callable[..., Any]


@pytest.fixture
def own_server(private_server: Postgres) -> Postgres:
    """A server whose pg_cron the test may break."""
    if private_server.pg_cron is None:
        pytest.skip("no PostgreSQL with pg_cron is installed: `apt-get install postgresql-15-cron` on Debian 12")
    return private_server


def kinds(findings: list[CronFinding]) -> list[tuple[CronFindingKind, str | None]]:
    return [(each.kind, each.job) for each in findings]


@pytest.mark.long
def test_without_pg_cron_the_finding_says_which_setting_to_change(own_server: Postgres) -> None:
    with own_server.admin() as conn:
        conn.execute("ALTER SYSTEM SET shared_preload_libraries = 'auto_explain'")
    own_server.place.stop()
    own_server.place.start()

    with own_server.new_database() as database:
        conn = database.connect()
        schema.migrate(conn)
        (found,) = cron.check(conn)

        assert found.kind is CronFindingKind.ABSENT
        assert "shared_preload_libraries" in found.fix
        with pytest.raises(CronUnavailable, match="pg_cron is not loaded"):
            cron.install(conn)
        with pytest.raises(CronUnavailable, match="pg_cron is not loaded"):
            cron.remove(conn)


@pytest.mark.long
def test_a_missing_extension_is_found_and_created(own_server: Postgres, eventually: Eventually) -> None:
    with own_server.admin(own_server.cron_database) as jobs:
        jobs.execute("DROP EXTENSION IF EXISTS pg_cron")

    with own_server.new_database(template=own_server.migrated) as database:
        conn = database.connect()
        until_its_middle(conn)
        (found,) = cron.check(conn)
        cron.install(conn)

        assert found.kind is CronFindingKind.ABSENT
        # The launcher of a server that just started may still be missing: its database did not exist at first.
        eventually(lambda: cron.check(conn) == [])


@pytest.mark.long
def test_a_missing_launcher_is_found(own_server: Postgres, eventually: Eventually) -> None:
    with own_server.new_database(template=own_server.migrated) as database:
        conn = database.connect()
        until_its_middle(conn)
        cron.install(conn)

        def found_without_it() -> list[CronFinding]:
            # The server starts it again, a moment later.
            conn.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'pg_cron launcher'"
            )
            return cron.check(conn)

        found = eventually(found_without_it)

        assert kinds(found) == [(CronFindingKind.LAUNCHER_NOT_SEEN, None)]


@pytest.mark.long
def test_jobs_of_a_dropped_role_are_found_because_they_can_stop_all_others(own_server: Postgres) -> None:
    with (
        own_server.new_database(template=own_server.migrated) as database,
        own_server.admin(own_server.cron_database) as jobs,
    ):
        conn = database.connect()
        until_its_middle(conn)
        cron.install(conn)
        jobs.execute("CREATE ROLE leaving LOGIN")
        jobs.execute("SELECT cron.schedule_in_database('x', '0 0 1 1 *', 'SELECT 1', 'postgres', 'leaving', false)")
        jobs.execute("DROP ROLE leaving")

        found = cron.check(conn)

        assert (CronFindingKind.ROLE_MISSING, None) in kinds(found)
        assert "'leaving'" in str(found)
