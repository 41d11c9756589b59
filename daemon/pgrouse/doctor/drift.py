"""Checks whether the schema is that of this version, and unchanged since the installation.

Someone may have changed or dropped parts of it by hand.

The files of this version define how it should be. The ledger records which of them were applied, but not what was
changed since.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import psycopg

from pgrouse.database.install import schema
from pgrouse.doctor.finding import Finding, fail, ok
from pgrouse.doctor.target import DoctorTarget
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
FUNCTIONS = (
    "SELECT p.proname::text, p.prosrc, p.prosecdef FROM pg_proc AS p WHERE p.pronamespace = 'messages'::regnamespace"
)
OBJECTS = """
  SELECT 'index ' || c.relname FROM pg_class AS c
  WHERE c.relnamespace = 'messages'::regnamespace AND c.relkind IN ('i', 'I')
  UNION ALL
  SELECT 'view ' || c.relname FROM pg_class AS c WHERE c.relnamespace = 'messages'::regnamespace AND c.relkind = 'v'
  UNION ALL
  SELECT 'trigger ' || t.tgname || ' of ' || c.relname
  FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid AND c.relnamespace = 'messages'::regnamespace
"""


@dataclass(frozen=True)
class SchemaFunction:
    """A function in a file: its file, its body, and whether it runs with the owner's rights."""

    file: str
    body: str
    definer: bool


@dataclass(frozen=True)
class SchemaObject:
    """An index, a trigger or a view: its file, and how to create it again."""

    file: str
    fix: str


def check_version(target: DoctorTarget) -> Iterator[Finding]:
    """Report whether the schema was installed by this version."""
    try:
        with target.reading() as conn:
            schema.check(conn)
            applied = _applied(conn)
    except SchemaMismatch as mismatch:
        what, _, fix = str(mismatch).partition(": ")
        yield fail("schema", what, fix)
        return
    if other := [each.name for each in _files() if each.name not in applied]:
        what = f"{len(other)} objects differ from this version, the first is {other[0]}"
        yield fail("schema", what, "run `pgrouse migrate`", "\n".join(other))
    else:
        yield ok("schema", "matches this version")


def check_functions(target: DoctorTarget) -> Iterator[Finding]:
    """Report functions that are missing, or differ from their file although it was applied."""
    made, render = functions(), target.database.schema.render
    with target.reading() as conn:
        applied = _applied(conn)
        found: dict[str, set[tuple[str, bool]]] = {}
        for name, body, definer in conn.execute(FUNCTIONS):
            found.setdefault(name, set()).add((body, definer))
    wrong = [
        name
        for name, each in made.items()
        if each.file in applied and (render(each.body), each.definer) not in found.get(name, ())
    ]
    for name in wrong:
        what = f"messages.{name} is not as it was installed" if name in found else f"messages.{name} is gone"
        yield fail("functions", what, schema.how_to_reapply(made[name].file))
    if not wrong:
        yield ok("functions", f"all {len(made)} are as they were installed")


def check_objects(target: DoctorTarget) -> Iterator[Finding]:
    """Report indexes, triggers and views that are missing."""
    with target.reading() as conn:
        there, applied = {name for (name,) in conn.execute(OBJECTS)}, _applied(conn)
    gone = {name: each.fix for name, each in objects().items() if each.file in applied and name not in there}
    for name, fix in gone.items():
        yield fail("objects", f"the {name} is gone", fix)
    if not gone:
        yield ok("objects", f"all {len(objects())} indexes, triggers and views are there")


@cache
def functions() -> dict[str, SchemaFunction]:
    """Return the functions in the files of this version, by name."""
    found = {}
    for each in _files():
        for made in FUNCTION.finditer(each.text.decode()):
            found[made["name"]] = SchemaFunction(each.name, made["body"], "SECURITY DEFINER" in made["head"])
    return found


@cache
def objects() -> dict[str, SchemaObject]:
    """Return the indexes, triggers and views in the files of this version, by name."""
    found: dict[str, SchemaObject] = {}
    for each in schema.scripts():
        text = each.text.decode()
        for made in INDEX.finditer(text):
            name = f"index {made['name']}"
            found.pop(name, None)
            if made["verb"] != "DROP INDEX":
                found[name] = SchemaObject(each.name, _as_statement(made))
        if each.kind == "object":
            reapplied = SchemaObject(each.name, schema.how_to_reapply(each.name))
            found |= {f"trigger {made['name']} of {made['table']}": reapplied for made in TRIGGER.finditer(text)}
            found |= {f"view {made['name']}": reapplied for made in VIEW.finditer(text)}
    return found


def _files() -> list[schema.Script]:
    return [each for each in schema.scripts() if each.kind == "object"]


def _applied(conn: psycopg.Connection[Any]) -> set[str]:
    """Return the files of this version that were applied with their current text."""
    applied = schema.ledger(conn)
    return {each.name for each in schema.scripts() if applied.get((each.kind, each.name)) == each.digest}


def _as_statement(made: re.Match[str]) -> str:
    # CONCURRENTLY is not possible on partitioned tables.
    verb = made["verb"] if "message_archive" in made["rest"] else f"{made['verb']} CONCURRENTLY"
    return " ".join(f"{verb} {made['name']}{made['rest']};".split())
