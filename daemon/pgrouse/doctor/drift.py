"""Whether the schema is that of this version, and still as it was installed: somebody may have changed or dropped parts of it by hand.

The files of this version say how it should be. The ledger says which of them were applied, but not what became of them since.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, LiteralString

import psycopg

from pgrouse.install import schema
from pgrouse.doctor.finding import Finding, fail, ok
from pgrouse.doctor.target import Subject
from pgrouse.errors import SchemaMismatch

FUNCTION = re.compile(
    r"CREATE OR REPLACE FUNCTION messages\.(?P<name>\w+)\(.*?\n(?P<head>LANGUAGE\b.*?)AS \$\$(?P<body>.*?)\$\$;",
    re.DOTALL,
)
TRIGGER = re.compile(r"CREATE OR REPLACE TRIGGER (?P<name>\w+)\s.*?\bON messages\.(?P<table>\w+)", re.DOTALL)
VIEW = re.compile(r"CREATE OR REPLACE VIEW messages\.(?P<name>\w+)")
INDEX = re.compile(
    r"^(?P<verb>CREATE(?: UNIQUE)? INDEX|DROP INDEX) (?:messages\.)?(?P<name>\w+)(?P<rest>[^;]*);", re.MULTILINE
)
LEDGER = "SELECT l.name FROM messages.migration AS l JOIN unnest(%s::text[], %s::text[]) AS f (name, digest) USING (name) WHERE l.digest = f.digest"
FUNCTIONS = (
    "SELECT p.proname::text, p.prosrc, p.prosecdef FROM pg_proc AS p WHERE p.pronamespace = 'messages'::regnamespace"
)
OBJECTS = """
  SELECT 'index ' || c.relname FROM pg_class AS c WHERE c.relnamespace = 'messages'::regnamespace AND c.relkind IN ('i', 'I')
  UNION ALL
  SELECT 'view ' || c.relname FROM pg_class AS c WHERE c.relnamespace = 'messages'::regnamespace AND c.relkind = 'v'
  UNION ALL
  SELECT 'trigger ' || t.tgname || ' of ' || c.relname
  FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid AND c.relnamespace = 'messages'::regnamespace
"""


@dataclass(frozen=True)
class Function:
    """A function as its file has it: where that is, its body, and whether it runs with the owner's rights."""

    file: str
    body: str
    definer: bool


@dataclass(frozen=True)
class Object:
    """An index, a trigger or a view: the file that makes it, and how to make it anew."""

    file: str
    mend: str


def look_at_version(subject: Subject) -> Iterator[Finding]:
    """Say whether the schema was installed by this version."""
    try:
        with subject.reading() as conn:
            schema.check(conn)
            applied = _applied(conn)
    except SchemaMismatch as mismatch:
        what, _, mend = str(mismatch).partition(": ")
        yield fail("schema", what, mend)
        return
    if other := [each.name for each in _files() if each.name not in applied]:
        what = f"{len(other)} objects are not those of this version, the first is {other[0]}"
        yield fail("schema", what, "run `pgrouse migrate`", "\n".join(other))
    else:
        yield ok("schema", "is that of this version")


def look_at_functions(subject: Subject) -> Iterator[Finding]:
    """Say which functions are gone, or are not what their file says, though it was applied."""
    with subject.reading() as conn:
        applied = _applied(conn)
        found: dict[str, set[tuple[str, bool]]] = {}
        for name, body, definer in conn.execute(FUNCTIONS):
            found.setdefault(name, set()).add((body, definer))
    wrong = [
        name
        for name, each in functions().items()
        if each.file in applied and (each.body, each.definer) not in found.get(name, ())
    ]
    for name in wrong:
        what = f"messages.{name} is not as it was installed" if name in found else f"messages.{name} is gone"
        yield fail("functions", what, _anew(functions()[name].file))
    if not wrong:
        yield ok("functions", f"all {len(functions())} are as they were installed")


def look_at_objects(subject: Subject) -> Iterator[Finding]:
    """Say which indexes, triggers and views are gone."""
    with subject.reading() as conn:
        there, applied = _column(conn, OBJECTS), _applied(conn)
    gone = {name: each.mend for name, each in objects().items() if each.file in applied and name not in there}
    for name, mend in gone.items():
        yield fail("objects", f"the {name} is gone", mend)
    if not gone:
        yield ok("objects", f"all {len(objects())} indexes, triggers and views are there")


@cache
def functions() -> dict[str, Function]:
    """Return the functions that the files of this version make, by name."""
    found = {}
    for each in _files():
        for made in FUNCTION.finditer(each.text.decode()):
            found[made["name"]] = Function(each.name, made["body"], "SECURITY DEFINER" in made["head"])
    return found


@cache
def objects() -> dict[str, Object]:
    """Return the indexes, triggers and views that the files of this version make, by name."""
    found: dict[str, Object] = {}
    for each in schema.scripts():
        text = each.text.decode()
        for made in INDEX.finditer(text):
            name = f"index {made['name']}"
            found.pop(name, None)
            if made["verb"] != "DROP INDEX":
                found[name] = Object(each.name, _as_statement(made))
        if each.kind == "object":
            anew = Object(each.name, _anew(each.name))
            found |= {f"trigger {made['name']} of {made['table']}": anew for made in TRIGGER.finditer(text)}
            found |= {f"view {made['name']}": anew for made in VIEW.finditer(text)}
    return found


def _files() -> list[schema.Script]:
    return [each for each in schema.scripts() if each.kind == "object"]


def _applied(conn: psycopg.Connection[Any]) -> set[str]:
    """Return the files of this version that the ledger knows with the text that they have."""
    files = list(schema.scripts())
    return _column(conn, LEDGER, [each.name for each in files], [each.digest for each in files])


def _as_statement(made: re.Match[str]) -> str:
    # Partitioned tables know no CONCURRENTLY.
    verb = made["verb"] if "message_archive" in made["rest"] else f"{made['verb']} CONCURRENTLY"
    return " ".join(f"{verb} {made['name']}{made['rest']};".split())


def _anew(file: str) -> str:
    """Return how to have a file applied once more."""
    forget = f"UPDATE messages.migration SET digest = '' WHERE name = '{file}';"  # noqa: S608 - for people to run
    return f"{forget} and run `pgrouse migrate`"


def _column(conn: psycopg.Connection[Any], query: LiteralString, *values: Any) -> set[str]:
    return {name for (name,) in conn.execute(query, values or None)}
