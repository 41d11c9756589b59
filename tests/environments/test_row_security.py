"""Row-level security hides nothing of the queue without an error.

An event trigger may switch it on for every new table.
"""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from pgrouse import NewMessage, publish, publish_many
from pgrouse.database.install import schema
from pgrouse.errors import SchemaMismatch
from tests.environments.life import Life
from tests.server.postgres import Database

TRIGGER = """
    CREATE FUNCTION public.guard() RETURNS event_trigger LANGUAGE plpgsql AS $$
    DECLARE v_name text;
    BEGIN
      FOR v_name IN SELECT c.object_identity FROM pg_event_trigger_ddl_commands() AS c
        WHERE c.object_type = 'table' LOOP
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', v_name);
      END LOOP;
    END $$;
    CREATE EVENT TRIGGER guard ON ddl_command_end {when} EXECUTE FUNCTION public.guard()
"""
GUARDED = "SELECT count(*) FROM pg_class AS c WHERE c.relnamespace = 'messages'::regnamespace AND c.relrowsecurity"


def test_an_installation_shows_all_rows_to_those_who_have_the_right(empty_database: Database) -> None:
    admin = empty_database.connect()
    admin.execute(TRIGGER.format(when="WHEN TAG IN ('CREATE TABLE')").encode())

    schema.migrate(admin)

    assert admin.execute(GUARDED).fetchone() == (0,)
    admin.execute("SELECT messages.maintain_partitions(9)")
    assert admin.execute(GUARDED).fetchone() == (0,)
    admin.execute("SET ROLE messages_worker")
    schema.check(admin)


@pytest.mark.every_server
def test_hidden_rows_are_named_at_start_and_by_each_command_and_migrate_shows_them(
    database: Database, life_in: Callable[[Database], Life]
) -> None:
    admin = database.connect()
    admin.execute(
        "ALTER TABLE messages.migration ENABLE ROW LEVEL SECURITY; ALTER TABLE messages.message ENABLE ROW LEVEL "
        "SECURITY"
    )
    life = life_in(database)

    with pytest.raises(
        SchemaMismatch,
        match=r"row-level security is on for messages\.message, messages\.migration, .* run `pgrouse migrate`",
    ):
        schema.check(admin)
    daemon = life.launch()
    assert daemon.exit_code() == 78
    assert "row-level security is on for messages.message" in daemon.log.read_text()
    admin.execute("SET ROLE messages_operator; SET row_security = off")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
        admin.execute("SELECT FROM messages.message")
    admin.execute("RESET ROLE; SET ROLE messages_publisher")
    for send in (
        publish,
        lambda conn, *message: publish_many(conn, [NewMessage(topic=message[0], payload=message[1])]),
    ):
        with pytest.raises(SchemaMismatch, match=r"row-level security is on for messages.message, .*`pgrouse migrate`"):
            send(admin, "t", 1)
    admin.execute("RESET ROLE")

    assert life.pgrouse("migrate").code == 0
    schema.check(admin)
