"""`pgrouse init`: files to start from."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

import click

from pgrouse.errors import ConfigError
from pgrouse.terminal.command import CliSession, Command

TEMPLATES = ("pgrouse.toml", "handlers.py")


@click.command(cls=Command)
@click.argument("folder", default=".", type=click.Path(path_type=Path, file_okay=False), metavar="[DIR]")
@click.pass_obj
def init(session: CliSession, folder: Path) -> None:
    """Write a pgrouse.toml and a handlers.py to start from.

    They go into a folder, the working directory unless named. Files that exist are never overwritten.
    """
    existing = [folder / name for name in TEMPLATES if (folder / name).exists()]
    if existing:
        raise ConfigError(
            f"{existing[0]} exists already: nothing was written; choose another folder, or move the file away"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name in TEMPLATES:
        _write(folder / name, files("pgrouse.cli.start").joinpath("template", name).read_text(encoding="utf-8"))
    session.record({"created": [folder / name for name in TEMPLATES]})
    for name in TEMPLATES:
        session.say(f"wrote {folder / name}")
    session.say(_next_steps(folder))


def _write(path: Path, text: str) -> None:
    # "x": a file that was made in between is kept.
    with path.open("x", encoding="utf-8") as file:
        file.write(text)


def _next_steps(folder: Path) -> str:
    enter = "" if folder == Path() else f"  cd {folder}\n"
    address = "" if os.environ.get("PGROUSE_DSN") else "  export PGROUSE_DSN=postgresql://user@host/database\n"
    return (
        f'\nnext:\n{enter}{address}  pgrouse migrate\n  pgrouse run &\n  pgrouse publish hello \'{{"name": "world"}}\''
    )
