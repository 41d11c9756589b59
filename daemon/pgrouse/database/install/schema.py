"""Installs the schema of the queue, updates it, and checks that it is the one that this version works with.

The files say `messages`, and the digests in the ledger are those of the files. `conn` renders what is executed on it
for the name that the schema has: see `connection_schema`. So each function here takes a connection that pgrouse made,
or one in a block of `rendering`.

Migrations are numbered, applied once and never edited; because of their digest in the ledger an edit is an error. Every
other object (function, trigger, view) has its own file, which is applied again whenever its text changed; it may be in
any folder directly below `sql/`. The settings of functions and the grants are applied last. All of it happens in one
transaction.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path, PurePath
from typing import Any, Literal

import psycopg
from psycopg import errors, sql

from pgrouse.database import search_path, session_settings
from pgrouse.database.connection_schema import schema_of
from pgrouse.errors import ConfigError, MigrationEdited, SchemaMismatch

# One lock for all sessions that install the schema in one database. It is taken before anything else: `CREATE SCHEMA IF
# NOT EXISTS` has a race. Any role that may connect can hold it. Once the schema exists, migrating sessions lock the
# ledger instead, which only its owner can.
ADVISORY_LOCK = 0x7067726F757365  # "pgrouse"
MIGRATIONS = "migrations"
# The functions that constraints of tables call. They need no table, and are applied before all tables.
CONSTRAINTS = "constraints"
# Not a part of the schema: `pgrouse cron` applies these.
OPTIONAL = "cron"
APPLIED = b"SELECT m.name FROM messages.migration AS m WHERE m.kind OPERATOR(pg_catalog.=) 'migration'"

Kind = Literal["migration", "object"]


@dataclass(frozen=True)
class Script:
    """One SQL file and its name in the ledger: the name of the file without its folder, so that a file may be moved.

    Attributes:
        kind: a migration is applied once, an object whenever its text changed.
        name: the name of the file, without `.sql`; no two files have the same name.
        text: the content of the file.
    """

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
    return packaged if packaged.is_dir() else Path(__file__).parents[4] / "sql"


def script(path: str) -> bytes:
    """Return the text of one SQL file by its path below `sql/`."""
    return sql_root().joinpath(path).read_bytes()


def scripts() -> Iterator[Script]:
    """Yield the functions that constraints call, all migrations in order, then functions, then views, by name."""
    folders = {folder.name: folder for folder in sql_root().iterdir() if folder.is_dir() and folder.name != OPTIONAL}
    yield from _scripts("object", folders.pop(CONSTRAINTS))
    yield from _scripts("migration", folders.pop(MIGRATIONS))
    yield from _scripts("object", *folders.values())


def _scripts(kind: Kind, *folders: Traversable) -> list[Script]:
    """Return the files of all these folders together, by name; views, which need the functions that they call, last."""
    found = [file for folder in folders for file in folder.iterdir() if file.name.endswith(".sql")]
    return sorted(
        (Script(kind, PurePath(file.name).stem, file.read_bytes()) for file in found),
        key=lambda each: (b"\nCREATE OR REPLACE VIEW " in each.text, each.name),
    )


def migrate(conn: psycopg.Connection, *, dry_run: bool = False) -> list[str]:
    """Bring the schema up to date in one transaction; return the names of the files that were applied.

    With `dry_run` they are the files that would be applied.

    Any number of sessions may call this at once on one database: the first does the work. A superuser hands the schema
    to `messages_owner`; any other role owns it and needs CREATE on the database.

    Raises:
        SchemaMismatch: an event trigger hides rows again each time. Or a superuser calls this, and a role without
            superuser rights can act as the owner of the schema. Or a migration drops a function that a view or function
            outside of the schema is bound to. Or the schema is newer than this version, or was renamed.
        MigrationEdited: a migration in the ledger has another text in this version.
        ConfigError: a setting of the session makes it impossible.
        psycopg.errors.LockNotAvailable: another session holds a table of the schema for longer than 5 s; nothing was
        changed, try again.
    """
    with conn.transaction(force_rollback=dry_run), search_path.fixed(conn):
        conn.execute(script("session.sql"))
        session_settings.check(conn, session_settings.WRITING)
        _check_settings_prefix(conn)
        _refuse_renamed(conn)
        conn.execute("SET LOCAL lock_timeout = '60s'")
        _lock(conn)
        # Publishers and workers queue up behind a waiting lock: it is better to stop, and to try again when the long
        # reader is gone.
        conn.execute("SET LOCAL lock_timeout = '5s'")
        conn.execute(script("roles.sql"))
        _act_as_owner(conn)
        conn.execute(script("ledger.sql"))
        # Another session may have created the schema since this one looked for it. Nothing of that role has run yet.
        conn.execute("RESET ROLE")
        _act_as_owner(conn)
        pending = list(_pending(conn))
        granted = _granted(conn)
        for each in pending:
            _apply(conn, each)
        _record(conn, pending)
        conn.execute(script("settings.sql"))
        conn.execute("SELECT messages.maintain_partitions()")
        conn.execute(script("grants.sql"))
        _grant_again(conn, granted)
        _show_all_rows(conn)
        # In a longer transaction of the caller, the owner's rights must not remain.
        conn.execute("RESET ROLE")
    return [each.name for each in pending]


def is_up_to_date(conn: psycopg.Connection[Any]) -> bool:
    """Return whether `migrate` would apply nothing. It needs only the right to read the ledger.

    Raises:
        SchemaMismatch, MigrationEdited: as `migrate`.
    """
    _refuse_renamed(conn)
    return is_installed(conn) and not list(_pending(conn))


def is_installed(conn: psycopg.Connection[Any]) -> bool:
    """Return whether the database has the schema, of any version."""
    return conn.execute("SELECT pg_catalog.to_regclass('messages.migration')").fetchone() != (None,)


def check(conn: psycopg.Connection) -> None:
    """Check that the installed schema is that of this version.

    Raises:
        SchemaMismatch: it is missing, older, newer or renamed; the text says which, and what to run.
    """
    if not is_installed(conn):
        raise SchemaMismatch(f"the database has no schema `{schema_of(conn).name}`: run `pgrouse migrate`")
    _refuse_renamed(conn)
    if hidden := _hidden(conn):
        more = " and others" if len(hidden) > 3 else ""  # noqa: PLR2004
        raise SchemaMismatch(
            f"row-level security is on for {', '.join(hidden[:3])}{more}, "
            "which hides rows of the queue: run `pgrouse migrate`, which switches it off"
        )
    wanted = _migrations((each.kind, each.name) for each in scripts())
    found = {name for (name,) in conn.execute(APPLIED)}
    if missing := sorted(wanted - found):
        raise SchemaMismatch(
            f"the schema is older than this version (no migration {missing[0]}): run `pgrouse migrate`"
        )
    _refuse_newer(found, wanted)


# The queue does not use rights on rows: a hidden row is a lost row.
HIDDEN = """
    SELECT c.oid::pg_catalog.regclass::pg_catalog.text FROM pg_catalog.pg_class AS c
    WHERE c.relnamespace OPERATOR(pg_catalog.=) pg_catalog.to_regnamespace('messages')::pg_catalog.oid
      AND c.relrowsecurity
    ORDER BY 1
"""


def _hidden(conn: psycopg.Connection[Any]) -> list[str]:
    """Return the tables whose policies hide rows: an event trigger may switch this on for each new table."""
    return [name for (name,) in conn.execute(HIDDEN)]


def _show_all_rows(conn: psycopg.Connection[Any]) -> None:
    for name in _hidden(conn):
        conn.execute(f"ALTER TABLE {name} DISABLE ROW LEVEL SECURITY".encode())
    if hidden := _hidden(conn):
        raise SchemaMismatch(
            f"an event trigger switches row-level security on again for {hidden[0]}: "
            f"leave the schema {schema_of(conn).name} out in that trigger"
        )


def _migrations(names: Iterable[tuple[Any, ...]]) -> set[str]:
    """Return the names of the migrations in a list of kinds and names."""
    return {name for kind, name in names if kind == "migration"}


def _refuse_newer(found: set[str], wanted: set[str]) -> None:
    if unknown := sorted(found - wanted):
        raise SchemaMismatch(
            f"the schema is newer than this version (has migration {unknown[-1]}): upgrade pgrouse on this machine"
        )


def _check_settings_prefix(conn: psycopg.Connection) -> None:
    """Check that functions can have settings that begin with the name of the schema."""
    try:
        with conn.transaction():
            conn.execute("SELECT set_config('messages.is_valid', '', true)")
    except errors.InvalidName as error:
        raise ConfigError(
            f"database.schema: an extension of this server has settings that begin with {schema_of(conn).settings}: "
            "choose another name"
        ) from error


# ALTER SCHEMA leaves the bodies of functions as they are.
RENAMED = """
    SELECT substring(p.prosrc FROM 'PERFORM (.*)[.]notify_inserted') FROM pg_catalog.pg_proc AS p
    WHERE p.pronamespace OPERATOR(pg_catalog.=) pg_catalog.to_regnamespace('messages')::pg_catalog.oid
      AND p.proname OPERATOR(pg_catalog.=) 'notify_topics'
      AND pg_catalog.strpos(p.prosrc, 'messages.notify_inserted') OPERATOR(pg_catalog.=) 0
"""


def _refuse_renamed(conn: psycopg.Connection[Any]) -> None:
    """Refuse a schema whose functions, roles and jobs have the name of another one."""
    if found := conn.execute(RENAMED).fetchone():
        here, before = schema_of(conn), found[0]
        raise SchemaMismatch(
            f"the schema `{here.name}` was {before} when it was installed, and all that belongs to it has that name: "
            f"run ALTER SCHEMA {here.identifier} RENAME TO {before}, and set database.schema accordingly"
        )


def _lock(conn: psycopg.Connection) -> None:
    """Ensure that only this session migrates this database, until the transaction ends."""
    there = "SELECT to_regclass('messages.migration') IS NOT NULL"
    if conn.execute(there).fetchone() == (False,):
        conn.execute("SELECT pg_advisory_xact_lock(%s)", [ADVISORY_LOCK])
    # Another session may have installed it in the meantime.
    if conn.execute(there).fetchone() == (True,):
        _act_as_owner(conn)
        conn.execute("LOCK TABLE messages.migration IN SHARE ROW EXCLUSIVE MODE")
        conn.execute("RESET ROLE")


# For a superuser only: another role that can act as the owner.
OTHERS = """
    SELECT r.rolname FROM pg_roles AS r
    WHERE NOT r.rolsuper AND pg_has_role(r.oid, %(owner)s::regrole::oid, 'MEMBER')
      AND (r.rolcanlogin OR r.rolname <> 'messages_owner')
      AND (SELECT s.rolsuper FROM pg_roles AS s WHERE s.rolname = current_user)
    ORDER BY r.oid <> %(owner)s::regrole::oid, r.rolname LIMIT 1
"""


def _act_as_owner(conn: psycopg.Connection) -> None:
    """Become the role that owns the schema, or should own it.

    Objects of the owner (a trigger on the ledger, a view in its place) run in this session and can undo `SET ROLE`. So
    a superuser does not become a role that a role without superuser rights can act as.
    """
    row = conn.execute(
        """
        SELECT coalesce(
          (SELECT n.nspowner::regrole::text FROM pg_namespace AS n WHERE n.nspname = 'messages'),
          (SELECT quote_ident('messages_owner') FROM pg_roles AS r WHERE r.rolname = current_user AND r.rolsuper),
          quote_ident(current_user))
        """
    ).fetchone()
    assert row is not None  # noqa: S101 - a SELECT without FROM has one row
    (owner,) = row
    if other := conn.execute(OTHERS, {"owner": owner}).fetchone():
        raise SchemaMismatch(
            f"the owner of the schema `{schema_of(conn).name}` is {owner}, "
            f"and {other[0]}, who is no superuser, can act as that: "
            f"what he has put there would run with the rights of a superuser. Run `pgrouse migrate` as {other[0]}"
        )
    conn.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.SQL(owner)))


def ledger(conn: psycopg.Connection[Any]) -> dict[tuple[str, str], str]:
    """Return the digests of the files that were applied, by kind and name."""
    return {
        (kind, name): digest for kind, name, digest in conn.execute("SELECT kind, name, digest FROM messages.migration")
    }


def how_to_reapply(file: str) -> str:
    """Return how to apply a file again."""
    forget = f"UPDATE messages.migration SET digest = '' WHERE name = '{file}';"  # noqa: S608 - for people to run
    return f"{forget} and run `pgrouse migrate`"


def _pending(conn: psycopg.Connection[Any]) -> Iterator[Script]:
    """Yield the files that the ledger does not have, or has with another text."""
    applied_before = ledger(conn)
    files = list(scripts())
    _refuse_newer(_migrations(applied_before), _migrations((each.kind, each.name) for each in files))
    for each in files:
        applied = applied_before.get((each.kind, each.name))
        if applied == each.digest:
            continue
        if applied is not None and each.kind == "migration":
            raise MigrationEdited(
                f"migration {each.name} was edited after it was applied: "
                "restore its text and put the change into a new migration"
            )
        yield each


def _apply(conn: psycopg.Connection, each: Script) -> None:
    try:
        conn.execute(each.text)
    except errors.DependentObjectsStillExist as error:
        raise SchemaMismatch(
            f"{each.name} replaces what others are bound to: {error.diag.message_detail}. "
            "Keep the definition and the grants of what is "
            'bound, drop it, migrate, and make it again: docs/operating/upgrade.md, "What is bound to a function"'
        ) from error


@dataclass(frozen=True)
class _Grant:
    """The right of a role to call a function; the names are quoted where needed."""

    oid: int
    name: str
    grantee: str
    with_option: bool


def _granted(conn: psycopg.Connection[Any]) -> list[_Grant]:
    """Return which roles other than the owner may call which function of the schema.

    Rights of PUBLIC are not granted again.
    """
    rows = conn.execute(
        """
        SELECT p.oid, p.proname::text, a.grantee::regrole::text, bool_or(a.is_grantable)
        FROM pg_proc AS p, aclexplode(p.proacl) AS a
        WHERE p.pronamespace = 'messages'::regnamespace AND a.grantee NOT IN (0, p.proowner)
          AND a.privilege_type = 'EXECUTE'
        GROUP BY 1, 2, 3
        """
    )
    return [_Grant(*row) for row in rows]


def _grant_again(conn: psycopg.Connection[Any], granted: list[_Grant]) -> None:
    """Allow roles that could call a function to call the function with this name that replaced it.

    A function whose arguments changed is dropped and created again, which removes its grants; a replaced function keeps
    them.
    """
    found = conn.execute(
        "SELECT p.oid, p.proname::text, p.oid::regprocedure::text FROM pg_proc AS p "
        "WHERE p.pronamespace = 'messages'::regnamespace"
    ).fetchall()
    there = {oid for oid, _, _ in found}
    made = {(name, signature) for _, name, signature in found}
    for each in granted:
        if each.oid in there:
            continue
        for name, signature in made:
            if name == each.name:
                grant = f"GRANT EXECUTE ON FUNCTION {signature} TO {each.grantee}"
                conn.execute((grant + (" WITH GRANT OPTION" if each.with_option else "")).encode())


def _record(conn: psycopg.Connection, applied: Sequence[Script]) -> None:
    conn.execute(
        """
        INSERT INTO messages.migration (kind, name, digest, version)
        SELECT a.kind, a.name, a.digest, %s FROM unnest(%s::text[], %s::text[], %s::text[]) AS a (kind, name, digest)
        ON CONFLICT (kind, name) DO UPDATE
        SET digest = excluded.digest, version = excluded.version, applied_at = clock_timestamp(),
            applied_by = session_user
        """,
        [version("pgrouse"), *([getattr(each, part) for each in applied] for part in ("kind", "name", "digest"))],
    )
