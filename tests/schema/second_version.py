"""A made-up later version: a column, a function with one more argument, and a new one in a folder of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pgrouse.database.install import schema

NAME = "99.0"
MIGRATION = "9999_colour"
# These files are applied to the schema of this version, in this order.
UPGRADE = [MIGRATION, "colour", "publish"]


def write(sql: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the files in `sql`, a copy of the folder, those of the second version."""
    (sql / f"migrations/{MIGRATION}.sql").write_text(
        """
        ALTER TABLE messages.message ADD COLUMN colour text;
        -- It gets one more argument.
        DROP FUNCTION IF EXISTS messages.publish;
        """
    )
    publish = file(sql, "publish")
    publish.write_text(re.sub(r"\n(\s*OUT )", r"\n  p_colour text DEFAULT NULL,\n\1", publish.read_text(), count=1))
    (sql / "paint").mkdir()
    (sql / "paint/colour.sql").write_text(
        "CREATE OR REPLACE FUNCTION messages.colour() RETURNS text LANGUAGE sql AS $$ SELECT 'red' $$"
    )
    monkeypatch.setattr(schema, "version", lambda _: NAME)


def file(sql: Path, name: str) -> Path:
    """Return the file of an object, whatever its folder."""
    [found] = sql.glob(f"*/{name}.sql")
    return found
