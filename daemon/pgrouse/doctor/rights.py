"""Checks whether roles and the configured user have their rights.

The roles need those that the schema grants, the user those for its tasks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import psycopg

from pgrouse.database.install.schema import script
from pgrouse.doctor.finding import Finding, fail, ok
from pgrouse.doctor.target import DoctorTarget

GRANT = re.compile(r"\['messages_(\w+)', 'EXECUTE ON FUNCTION ([^']+)'\]")
LACKING = """
  SELECT g.role, array_agg(DISTINCT g.name ORDER BY g.name)
  FROM unnest(%s::text[], %s::text[]) AS g (role, name)
  JOIN pg_roles AS r ON r.rolname = g.role
  JOIN pg_proc AS p ON p.pronamespace = 'messages'::regnamespace AND p.proname = g.name
  WHERE NOT (has_function_privilege(r.oid, p.oid, 'EXECUTE') AND has_schema_privilege(r.oid, 'messages', 'USAGE'))
  GROUP BY g.role ORDER BY g.role
"""
ROLES_MISSING = """
  SELECT array_agg(DISTINCT g.role ORDER BY g.role)
  FROM unnest(%s::text[]) AS g (role)
  WHERE NOT EXISTS (SELECT FROM pg_roles AS r WHERE r.rolname = g.role)
    -- A user that is no superuser installs the schema for itself, and needs no roles.
    AND (SELECT n.nspowner::regrole::text FROM pg_namespace AS n WHERE n.nspname = 'messages')
      = quote_ident('messages_owner')
"""
ME = """
  SELECT current_user::text, array_agg(p.proname::text ORDER BY p.proname)
           FILTER (WHERE NOT (has_function_privilege(p.oid, 'EXECUTE') AND has_schema_privilege('messages', 'USAGE')))
  FROM pg_proc AS p
  WHERE p.pronamespace = 'messages'::regnamespace AND p.proname = ANY (%s)
"""


@cache
def granted() -> dict[str, tuple[str, ...]]:
    """Return which functions this version grants to each kind of role."""
    found: dict[str, tuple[str, ...]] = {}
    for role, names in GRANT.findall(script("grants.sql").decode()):
        found[role] = (*found.get(role, ()), *re.findall(r"messages\.(\w+)", names))
    return found


def check_roles(target: DoctorTarget) -> Iterator[Finding]:
    """Report rights that were revoked from the roles since the schema was installed."""
    schema = target.database.schema
    pairs = [(schema.role(kind), name) for kind, names in granted().items() for name in names]
    roles, names = [role for role, _ in pairs], [name for _, name in pairs]
    with target.reading() as conn:
        lacking = conn.execute(LACKING, [roles, names]).fetchall()
        missing = _value(conn, ROLES_MISSING, roles) or []
    for role, functions in lacking:
        what = f"{role} may not call {_few(functions)}, which it needs"
        yield fail("grants", what, "run `pgrouse migrate`, which grants all rights again", "\n".join(functions))
    for role in missing:
        yield fail("grants", f"the role {role} does not exist", "run `pgrouse migrate` as a superuser")
    if not lacking and not missing:
        yield ok("grants", "every role has its rights")


def check_user(target: DoctorTarget) -> Iterator[Finding]:
    """Report rights that the user lacks and that workers with this configuration need."""
    with target.reading() as conn:
        user, lacking = conn.execute(ME, [list(granted()["worker"])]).fetchone() or ("the user", None)
    if not target.settings.topics_with_handler and not target.settings.handlers.modules:
        yield ok("rights", f"this configuration has no handlers, {user} needs no worker rights")
    elif lacking:
        what = f"{user} may not call {_few(lacking)}, which the handlers of this configuration need"
        yield fail("rights", what, f'GRANT messages_worker TO "{user}";', "\n".join(lacking))
    else:
        yield ok("rights", f"{user} has the rights of a worker")


def _few(names: list[str]) -> str:
    """Return the first names, and how many more there are."""
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"  # noqa: PLR2004


def _value(conn: psycopg.Connection[Any], query: str, *values: Any) -> Any:
    row = conn.execute(query.encode(), values).fetchone()
    return row[0] if row else None
