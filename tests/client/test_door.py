"""Every statement of the package goes through the door that renders it for the schema of the queue.

A connection that pgrouse makes has cursors that render. What opens a connection or makes a cursor in another way is
listed here, with how it renders.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
FOLDERS = (CHECKOUT / "daemon" / "pgrouse", CHECKOUT / "pipeline")
# A call of these opens a connection, or makes a cursor of a class of its own.
CONNECTS = {"psycopg.connect", "psycopg.AsyncConnection.connect", "AsyncConnectionPool", "ConnectionPool"}
CURSORS = {f"{prefix}{kind}" for prefix in ("", "psycopg.") for kind in ("Cursor", "AsyncCursor", "RawCursor",
           "AsyncRawCursor", "ClientCursor", "AsyncClientCursor", "ServerCursor", "AsyncServerCursor")}  # fmt: skip
# These use the connection: `set_up` lets it render, and so does `use`.
DOORS = {"session_settings.set_up", "session_settings.set_up_async"}

NO_STATEMENT = "its statements name nothing of the queue"
ELSEWHERE = {
    "client/call.py:run": "it renders",
    "client/call.py:run_async": "it renders",
    "client/processing/worker_client.py:_send": "it renders",
    "client/connection/database.py:connect": "`use`",
    "client/connection/database.py:connect_listener": "`use`",
    "client/connection/database.py:connect_blocking": "`use`",
    "client/connection/database.py:pool": "handlers' own statements stay; `remember`",
    "client/connection/database.py:blocking_pool": "handlers' own statements stay; `remember`",
    "web/access/database_pool.py:__init__": "`use`, in its configure",
    "client/migration.py:_connected": "`set_up`",
    "publishing/drivers/psycopg_driver.py:fetch_row": "a Statement has no form without a schema",
    "publishing/drivers/psycopg_driver.py:copy_in": "a part has no COPY without a schema",
    "publishing/drivers/psycopg_driver.py:bulk": NO_STATEMENT,
    "database/session_settings.py:check": NO_STATEMENT,
    "database/search_path.py:fixed": NO_STATEMENT,
    "database/search_path.py:fixed_session": NO_STATEMENT,
    "database/search_path.py:_replaced": NO_STATEMENT,
    "doctor/listener.py:_notification_arrives": NO_STATEMENT,
    "database/install/pg_cron.py:_cron": "`set_up`",
    "devdb/choice.py:start": NO_STATEMENT,
    "devdb/container.py:_answers": NO_STATEMENT,
    "devdb/server.py:_make_database": NO_STATEMENT,
    "client/waiting/wait_for.py:_connect": "`set_up`",
    "testing/drain.py:drain": "calls, which render",
    "testing/drain.py:_connected": "calls, which render",
    "testing/runtime.py:connection": "handlers' own statements stay",
    "pytest_plugin.py:published": "a Statement",
    "pytest_plugin.py:_emptied_queue": "`rendering`, in clean",
}


def name_of(node: ast.expr) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Subscript | ast.Attribute):
        if isinstance(node, ast.Attribute):
            parts.insert(0, node.attr)
        node = node.value
    return ".".join([node.id, *parts]) if isinstance(node, ast.Name) else "?"


def unrendered(tree: ast.AST, function: str = "") -> Iterator[tuple[str, str]]:
    """Yield what opens a connection or makes a cursor outside of the door, and the function that it is in."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from unrendered(node, node.name)
            continue
        if isinstance(node, ast.Call) and name_of(node.func) in DOORS:
            continue
        if isinstance(node, ast.Call) and name_of(node.func) in CONNECTS | CURSORS:
            yield function, name_of(node.func)
        yield from unrendered(node, function)


def test_every_connection_and_cursor_renders_its_statements() -> None:
    found = {
        f"{file.relative_to(folder)}:{function}"
        for folder in FOLDERS
        for file in folder.rglob("*.py")
        for function, _ in unrendered(ast.parse(file.read_bytes()))
    }

    assert found - ELSEWHERE.keys() == set(), "open it with session_settings.set_up or Database, or call run"
    assert ELSEWHERE.keys() - found == set(), "it is not there any more"


@pytest.mark.parametrize(
    ("code", "is_found"),
    [
        ("def f():\n  with psycopg.connect(dsn) as conn: pass", True),
        ("def f():\n  with session_settings.set_up(psycopg.connect(dsn)) as conn: pass", False),
        ("def f():\n  psycopg.Cursor(conn).execute('x')", True),
        ("def f():\n  conn.cursor().execute('x')", False),
        ("async def f():\n  async with AsyncConnectionPool[Any](dsn): pass", True),
    ],
)
def test_what_does_not_render_is_found(code: str, is_found: bool) -> None:
    assert bool(list(unrendered(ast.parse(code)))) is is_found
