"""deploy/systemd/install.sh: what it installs where, what it keeps, and what it refuses."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.unit import NAMES, SYSTEMD

SCRIPT = SYSTEMD / "install.sh"
# A registry may be slow.
pytestmark = pytest.mark.timeout(600)


def install(*arguments: str | Path, destdir: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the script, by the smallest shell, with this interpreter's uv.

    It should not spend its time on compiling.
    """
    shell = shutil.which("dash") or "/bin/sh"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path, "UV_COMPILE_BYTECODE": "0"}
    environ.pop("DESTDIR", None)
    if destdir is not None:
        environ["DESTDIR"] = str(destdir)
    return subprocess.run(
        [shell, str(SCRIPT), *map(str, arguments)], capture_output=True, text=True, check=False, env=environ, cwd="/"
    )


def tree(root: Path) -> dict[str, str]:
    """Return every file but those of the virtual environment, with its mode."""
    paths = [path for path in root.rglob("*") if path.is_file() and "venv" not in path.parts]
    return {str(path.relative_to(root)): oct(path.stat().st_mode & 0o777) for path in sorted(paths)}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree, installed twice, with changes of the administrator in between."""
    root = tmp_path_factory.mktemp("root")
    first = install("--extras", "", "--python", sys.executable, destdir=root)
    assert first.returncode == 0, first.stderr
    (root / "etc/pgrouse/pg_service.conf").write_text("[pgrouse]\npassword=mine\n")
    second = install("--extras", "", "--python", sys.executable, destdir=root)
    assert second.returncode == 0, second.stderr
    return root


@pytest.mark.long
def test_the_installed_files_run(root: Path) -> None:
    program = root / "opt/pgrouse/venv/bin/pgrouse"

    output = subprocess.run([program, "--version"], capture_output=True, text=True, check=True, cwd="/").stdout
    checked = subprocess.run(
        [program, "config", "check", "--config", root / "etc/pgrouse/pgrouse.toml"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},  # the files installed are compared below
        cwd="/",
    )

    assert output.startswith("pgrouse ")
    assert checked.returncode == 0, checked.stderr


@pytest.mark.long
def test_files_are_installed_and_secrets_are_private(root: Path) -> None:
    assert tree(root) == {
        "etc/pgrouse/environment": "0o644",
        "etc/pgrouse/handlers.py": "0o644",
        "etc/pgrouse/pg_service.conf": "0o600",
        "etc/pgrouse/pgrouse.toml": "0o644",
        "etc/pgrouse/pipeline.pg_service.conf": "0o600",
        "etc/pgrouse/web.pg_service.conf": "0o600",
        **{f"etc/systemd/system/{name}": "0o644" for name in sorted(NAMES)},
    }


@pytest.mark.long
def test_the_installed_units_are_those_of_the_checkout(root: Path) -> None:
    for name in NAMES:
        assert (root / "etc/systemd/system" / name).read_text() == (SYSTEMD / name).read_text()


@pytest.mark.long
def test_a_second_run_keeps_changes_of_the_administrator(root: Path) -> None:
    assert "password=mine" in (root / "etc/pgrouse/pg_service.conf").read_text()


def test_a_dry_run_prints_the_steps_and_does_nothing(tmp_path: Path) -> None:
    done = install("--dry-run", "--python", sys.executable, destdir=tmp_path / "root")

    assert done.returncode == 0, done.stderr
    assert f"would run: mkdir -p {tmp_path}/root/opt/pgrouse" in done.stdout
    for kind in ("", "web.", "pipeline."):
        assert f"would run: chmod 600 {tmp_path}/root/etc/pgrouse/{kind}pg_service.conf\n" in done.stdout
    assert not (tmp_path / "root").exists()


def test_uninstall_keeps_the_configuration_and_purge_removes_it(tmp_path: Path) -> None:
    for path in ("opt/pgrouse/venv/bin", "etc/pgrouse", "etc/systemd/system"):
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "etc/pgrouse/pgrouse.toml").touch()
    (tmp_path / "etc/systemd/system/pgrouse.service").touch()
    (tmp_path / "etc/systemd/system/other.service").touch()

    assert install("--uninstall", destdir=tmp_path).returncode == 0
    assert tree(tmp_path).keys() == {"etc/pgrouse/pgrouse.toml", "etc/systemd/system/other.service"}
    assert not (tmp_path / "opt/pgrouse").exists()

    assert install("--uninstall", "--purge", destdir=tmp_path).returncode == 0
    assert tree(tmp_path).keys() == {"etc/systemd/system/other.service"}


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["--frobnicate"], 2, "no such option: --frobnicate"),
        (["--python"], 2, "--python needs a value"),
        (["--purge"], 2, "--purge goes with --uninstall"),
        (["--dry-run", "--python", "/nowhere/python3"], 1, "/nowhere/python3 is not a Python 3.11 or newer"),
        (["--dry-run", "--from", "somewhere"], 1, "neither a path nor pgrouse with a version"),
    ],
)
def test_a_precondition_that_fails_is_reported_in_one_line(arguments: list[str], code: int, expected: str) -> None:
    done = install(*arguments)

    assert (done.returncode, done.stderr.count("\n")) == (code, 1)
    assert expected in done.stderr


def test_help_names_every_option() -> None:
    output = install("--help").stdout

    assert all(f"--{name}" in output for name in ("from", "extras", "python", "uninstall", "purge", "dry-run"))
    assert "set -eu" not in output
