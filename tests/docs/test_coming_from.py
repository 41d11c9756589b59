"""docs/coming-from.md: the job runs as it stands, and the snippets of others can be read."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import NullPool, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from pgrouse.cli import main
from pgrouse.testing import DatabaseUrl, drain
from tests.docs.page import Page
from tests.server.postgres import Database

PAGE = Page("docs/coming-from.md")


class Base(DeclarativeBase):
    """The tables of the application."""


class Invoice(Base):
    """A row that is written with the message."""

    __tablename__ = "coming_from_invoice"
    order_id: Mapped[int] = mapped_column(primary_key=True)
    total: Mapped[int]


def test_the_job_runs_as_it_stands(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs, publish = [block.text for block in PAGE.blocks if block.kind == "python runnable"]
    (tmp_path / "jobs.py").write_text(jobs)
    (tmp_path / "pgrouse.toml").write_text(next(block.text for block in PAGE.blocks if block.kind == "toml"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PGROUSE_DSN", database.dsn)
    commands = next(block.text for block in PAGE.blocks if block.kind == "console").split("\n")
    migrate = commands[0].removeprefix("$ pgrouse ").partition("#")[0].split()
    assert main(migrate) == 0, capsys.readouterr()
    names: dict[str, Any] = {}
    import jobs as module  # type: ignore[import-not-found]  # noqa: PLC0415 - it was written just now

    engine = create_engine(DatabaseUrl.of(database.dsn).url("postgresql+psycopg"), poolclass=NullPool)
    Base.metadata.create_all(engine)
    names |= vars(module) | {"Session": Session, "engine": engine, "Invoice": Invoice}

    exec(compile(publish, str(PAGE.path), "exec"), names)
    with database.connect() as conn:
        module.report.publish(conn, {})
    attempts = drain(database.dsn, tmp_path / "pgrouse.toml")

    assert {each.topic: each.outcome for each in attempts} == {
        "orders.created": "complete",
        "reports.daily": "complete",
    }
    with database.connect() as conn:
        assert conn.execute("SELECT max_attempts FROM messages.topic WHERE topic = 'orders.created'").fetchone() == (5,)
        assert conn.execute("SELECT cron, time_zone FROM messages.schedule").fetchall() == [
            ("0 7 * * *", "Europe/Berlin")
        ]
    sys.modules.pop("jobs")


def test_the_snippets_of_others_can_be_read() -> None:
    snippets = [block for block in PAGE.blocks if block.kind == "python"]

    for block in snippets:
        compile(block.text, PAGE.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

    assert len(snippets) == 7
