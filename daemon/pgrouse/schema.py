"""Install the schema `messages`, bring it up to date, and check that it is the one this version works with.

Migrations are numbered, applied once and never edited; their digest in the ledger makes an edit an error. Every other object (function,
trigger, view) is a file of its own, replaced whenever its text changed. All of it happens in one transaction.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Literal

import psycopg
from psycopg import sql

from pgrouse import search_path
from pgrouse.errors import MigrationEdited, SchemaMismatch

# One lock for all who install the schema in one database. It is taken before anything else: `CREATE SCHEMA IF NOT EXISTS` itself races.
# Any role that may connect can hold it. Once the schema is there migrators lock the ledger instead, which only its owner can.
ADVISORY_LOCK = 0x7067726F757365  # "pgrouse"
OBJECT_FOLDERS = ("functions", "triggers", "views")

Kind = Literal["migration", "object"]


@dataclass(frozen=True)
class Script:
    """One file of SQL and what the ledger knows it by."""

    kind: Kind
    name: str
    text: bytes

    @property
    def digest(self) -> str:
        """SHA-256 of the text."""
        return hashlib.sha256(self.text).hexdigest()


def sql_root() -> Traversable:
    """Return `pgrouse/sql` of an installed wheel, else `sql/` of the checkout (editable installs)."""
    packaged = files("pgrouse") / "sql"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "sql"


def script(path: str) -> bytes:
    """Return the text of one SQL file by its path below `sql/`."""
    return sql_root().joinpath(path).read_bytes()


def scripts() -> Iterator[Script]:
    """Yield all migrations in their order, then all replaceable objects by name."""
    for folder in ("migrations", *OBJECT_FOLDERS):
        kind: Kind = "migration" if folder == "migrations" else "object"
        for file in sorted(sql_root().joinpath(folder).iterdir(), key=lambda f: f.name):
            if file.name.endswith(".sql"):
                yield Script(kind, f"{folder}/{file.name}", file.read_bytes())


def migrate(conn: psycopg.Connection, *, dry_run: bool = False) -> list[str]:
    """Bring the schema up to date in one transaction; return the names of what was (or with `dry_run` would be) applied.

    Any number may call this at once on one database: the first does the work. A superuser hands the schema to `messages_owner`;
    anyone else owns it himself and needs CREATE on the database.

    Raises:
        SchemaMismatch: a superuser calls this, and somebody who is none can act as the owner of the schema.
        MigrationEdited: a migration in the ledger has another text in this version.
        psycopg.errors.LockNotAvailable: somebody holds a table of the schema for longer than 5 s; nothing was changed, try again.
    """
    with conn.transaction(force_rollback=dry_run), search_path.fixed(conn):
        conn.execute("SET LOCAL lock_timeout = '60s'")
        _lock(conn)
        # Publishers and workers queue up behind a lock that is waited for: rather give up, and try again when the long reader is gone.
        conn.execute("SET LOCAL lock_timeout = '5s'")
        conn.execute(script("roles.sql"))
        _act_as_owner(conn)
        conn.execute(script("ledger.sql"))
        # Somebody may have made the schema since it was looked for. Nothing of his has run yet.
        conn.execute("RESET ROLE")
        _act_as_owner(conn)
        pending = list(_pending(conn))
        # Functions call each other; their order in the folder must not matter.
        conn.execute("SET LOCAL check_function_bodies = off")
        conn.execute("SET LOCAL client_min_messages = warning")
        for each in pending:
            conn.execute(each.text)
            _record(conn, each)
        conn.execute("SELECT messages.maintain_partitions()")
        conn.execute(script("grants.sql"))
        # Within a longer transaction of the caller's the owner's rights must not linger.
        conn.execute("RESET ROLE")
    return [each.name for each in pending]


def check(conn: psycopg.Connection) -> None:
    """Make sure that the installed schema is the one of this version.

    Raises:
        SchemaMismatch: it is missing, older or newer; says which, and what to run.
    """
    if conn.execute("SELECT pg_catalog.to_regclass('messages.migration')").fetchone() == (None,):
        raise SchemaMismatch("the database has no schema `messages`: run `pgrouse migrate`")
    wanted = {each.name for each in scripts() if each.kind == "migration"}
    found = {name for kind, name in conn.execute("SELECT kind, name FROM messages.migration") if kind == "migration"}
    if missing := sorted(wanted - found):
        raise SchemaMismatch(f"the schema is older than this version (no {missing[0]}): run `pgrouse migrate`")
    if unknown := sorted(found - wanted):
        raise SchemaMismatch(
            f"the schema is newer than this version (has {unknown[-1]}): upgrade pgrouse on this machine"
        )


def _lock(conn: psycopg.Connection) -> None:
    """Be the only one that migrates this database, until the transaction ends."""
    there = "SELECT to_regclass('messages.migration') IS NOT NULL"
    if conn.execute(there).fetchone() == (False,):
        conn.execute("SELECT pg_advisory_xact_lock(%s)", [ADVISORY_LOCK])
    # Somebody may have installed it meanwhile.
    if conn.execute(there).fetchone() == (True,):
        _act_as_owner(conn)
        conn.execute("LOCK TABLE messages.migration IN SHARE ROW EXCLUSIVE MODE")
        conn.execute("RESET ROLE")


# Of a superuser only: who else can act as the role.
OTHERS = """
    SELECT r.rolname FROM pg_roles AS r
    WHERE NOT r.rolsuper AND pg_has_role(r.oid, %(owner)s::regrole::oid, 'MEMBER') AND (r.rolcanlogin OR r.rolname <> 'messages_owner')
      AND (SELECT s.rolsuper FROM pg_roles AS s WHERE s.rolname = current_user)
    ORDER BY r.oid <> %(owner)s::regrole::oid, r.rolname LIMIT 1
"""


def _act_as_owner(conn: psycopg.Connection) -> None:
    """Become the role that owns the schema, or shall own it.

    What the owner has put there (a trigger of the ledger, a view in its place) runs in this session, and can undo `SET ROLE`: so a superuser
    becomes no role that others than superusers can act as.
    """
    row = conn.execute(
        """
        SELECT coalesce(
          (SELECT n.nspowner::regrole::text FROM pg_namespace AS n WHERE n.nspname = 'messages'),
          (SELECT 'messages_owner' FROM pg_roles AS r WHERE r.rolname = current_user AND r.rolsuper),
          quote_ident(current_user))
        """
    ).fetchone()
    assert row is not None  # noqa: S101 - a SELECT without FROM has one row
    (owner,) = row
    if other := conn.execute(OTHERS, {"owner": owner}).fetchone():
        raise SchemaMismatch(
            f"the owner of the schema `messages` is {owner}, and {other[0]}, who is no superuser, can act as that: "
            f"what he has put there would run with the rights of a superuser. Run `pgrouse migrate` as {other[0]}"
        )
    conn.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.SQL(owner)))


def _pending(conn: psycopg.Connection) -> Iterator[Script]:
    """Yield what the ledger does not have, or has with another text."""
    ledger = {
        (kind, name): digest for kind, name, digest in conn.execute("SELECT kind, name, digest FROM messages.migration")
    }
    for each in scripts():
        applied = ledger.get((each.kind, each.name))
        if applied == each.digest:
            continue
        if applied is not None and each.kind == "migration":
            raise MigrationEdited(
                f"{each.name} was edited after it was applied: restore its text and put the change into a new migration"
            )
        yield each


def _record(conn: psycopg.Connection, each: Script) -> None:
    conn.execute(
        """
        INSERT INTO messages.migration (kind, name, digest, version) VALUES (%s, %s, %s, %s)
        ON CONFLICT (kind, name) DO UPDATE
        SET digest = excluded.digest, version = excluded.version, applied_at = clock_timestamp(), applied_by = session_user
        """,
        [each.kind, each.name, each.digest, version("pgrouse")],
    )
