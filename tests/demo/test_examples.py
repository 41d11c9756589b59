"""The examples that the demo runs are usable by a user."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import psycopg
import pytest

from pgrouse import Reject
from pgrouse.cli.demo.environment import examples
from pgrouse.config import config
from pgrouse.handlers.declaration import loader
from tests.server.postgres import Database


@pytest.fixture
def files_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("examples_files", examples() / "files.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_configuration_is_valid_and_every_handler_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])

    handlers = loader.load(config.load(examples() / "pgrouse.toml", environ={}))

    assert sorted(handlers) == [
        "file.read",
        "invoice.render",
        "label.print",
        "mail.send",
        "orders.created",
        "orders.overnight",
    ]


def test_configuration_and_policies_have_the_same_topics(db: psycopg.Connection[Any]) -> None:
    db.execute((examples() / "schema.sql").read_bytes())

    policies = {topic for (topic,) in db.execute("SELECT topic FROM messages.topic WHERE topic <> '*'")}

    assert policies == set(config.load(examples() / "pgrouse.toml", environ={}).topics)


@pytest.mark.parametrize("content", [b"\x00", b"text\n" * 100_000 + b"\x00"])
def test_a_file_with_a_nul_byte_anywhere_is_rejected(files_module: ModuleType, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "binary").write_bytes(content)

    with pytest.raises(Reject, match="binary"):
        files_module.read_text(tmp_path / "binary")


def test_a_file_that_is_too_large_is_rejected(files_module: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * (files_module.MOST_BYTES + 1))

    with pytest.raises(Reject, match="larger than"):
        files_module.read_text(tmp_path / "large")


@pytest.mark.long
@pytest.mark.slow
def test_the_examples_work_as_their_readme_describes(
    database: Database, tmp_path: Path, eventually: Callable[..., Any], daemon: Callable[..., None]
) -> None:
    conn = database.connect()
    conn.execute((examples() / "schema.sql").read_bytes())
    (tmp_path / "text").write_text("spam eggs spam\n")
    daemon(database.dsn)

    conn.execute(
        "INSERT INTO messages.message (topic, payload) VALUES ('file.read', jsonb_build_object('path', %s::text))",
        [str(tmp_path / "text")],
    )

    found = eventually(
        lambda: conn.execute("SELECT sha256, bytes, lines, words, times_stored FROM demo.file").fetchone(), within_s=60
    )
    assert found == (hashlib.sha256(b"spam eggs spam\n").digest(), 15, 1, [["spam", 2], ["eggs", 1]], 1)
