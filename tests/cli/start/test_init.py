"""`pgrouse init`."""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path

import pytest

from pgrouse.config.config import Config, flat_items, load
from pgrouse.config.source import show_key
from tests.cli.shell import Shell


def test_init_writes_a_configuration_that_passes_its_check(shell: Shell, folder: Path) -> None:
    ended = shell("init", "shop")

    assert ended.code == 0
    assert sorted(path.name for path in (folder / "shop").iterdir()) == ["handlers.py", "pgrouse.toml"]
    assert shell("config", "check", "--config", "shop/pgrouse.toml").code == 0


def test_failed_messages_are_tried_again_by_the_file_that_it_writes(shell: Shell, folder: Path) -> None:
    shell("init")

    assert tomllib.loads((folder / "pgrouse.toml").read_text())["topics"]["*"]["max_attempts"] == 5


def test_init_prints_the_next_steps(shell: Shell) -> None:
    lines = shell("init").out.splitlines()

    assert lines[:2] == ["wrote pgrouse.toml", "wrote handlers.py"]
    assert "  pgrouse migrate" in lines
    assert not any("cd " in line for line in lines)


@pytest.mark.parametrize("is_set", [True, False])
def test_the_address_is_a_step_only_while_it_is_not_set(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, is_set: bool
) -> None:
    monkeypatch.setenv("PGROUSE_DSN", "postgresql:///queue" if is_set else "")

    assert ("export PGROUSE_DSN=" in shell("init").out) is not is_set


def test_json_lists_the_files(shell: Shell) -> None:
    assert shell("init", "a/b", "--json").object == {"created": ["a/b/pgrouse.toml", "a/b/handlers.py"]}


@pytest.mark.parametrize("standing", ["pgrouse.toml", "handlers.py"])
def test_init_overwrites_nothing_and_then_writes_nothing(shell: Shell, folder: Path, standing: str) -> None:
    (folder / standing).write_text("mine")

    ended = shell("init")

    assert (ended.code, ended.out) == (78, "")
    assert ended.err.startswith(f"pgrouse: {standing} exists already: nothing was written")
    assert [path.name for path in folder.iterdir()] == [standing]
    assert (folder / standing).read_text() == "mine"


def test_a_folder_that_cannot_be_created_is_reported(shell: Shell, folder: Path) -> None:
    (folder / "file").touch()

    ended = shell("init", "file/inside")

    assert (ended.code, ended.err) == (1, "pgrouse: file/inside: Not a directory\n")


def test_every_key_in_a_comment_of_the_file_exists(shell: Shell, folder: Path) -> None:
    shell("init")
    text = (folder / "pgrouse.toml").read_text()

    uncommented = "\n".join(line.removeprefix("# ") if " = " in line else line for line in text.splitlines())
    found = tomllib.loads(uncommented.replace('dsn = "postgresql://pgrouse@localhost/app"', "", 1))

    assert set(found) == set(Config.model_fields)
    (folder / "pgrouse.toml").write_text(uncommented.replace('dsn = "postgresql://pgrouse@localhost/app"', "", 1))
    assert load(environ={"DB_PASSWORD": "x"}).worker.shutdown_timeout == Config().worker.shutdown_timeout
    assert all(show_key(key) for key, _ in flat_items(load(environ={"DB_PASSWORD": "x"})))


def test_the_handlers_are_plain_functions_that_can_be_called(shell: Shell, folder: Path) -> None:
    shell("init")
    spec = importlib.util.spec_from_file_location("template_handlers", folder / "handlers.py")
    assert spec is not None
    assert spec.loader is not None
    handlers = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(handlers)

    assert handlers.build_report(handlers.Report(pages=2)) == {"pages": 2}
