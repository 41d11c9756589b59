"""deploy/systemd: systemd understands the units, they are closed up, and fit how the daemon starts, reloads and stops."""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from pgrouse.cli.root import COMMANDS
from pgrouse.config.config import WorkerSettings
from pgrouse.errors import ExitCode
from pgrouse.worker.daemon import CANCEL_S, LAST_SETTLE_S
from pgrouse.worker.process_exit import EXIT_S
from tests.deploy.unit import NAMES, SYSTEMD, Unit

# As systemd-analyze counts: 0 has no rights at all, from 2.5 on it says medium.
MOST_EXPOSURE = 20

DAEMON = Unit("pgrouse.service")
INSTANCE = Unit("pgrouse@.service")
WEB = Unit("pgrouse-web.service")
UNITS = [DAEMON, INSTANCE, WEB]


def analyze(*arguments: str | Path, root: Path) -> str:
    """Run systemd-analyze on the units below a root of our own; return what it says, nothing if all is well."""
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed: sudo apt-get install systemd")
    command = ["systemd-analyze", *map(str, arguments), f"--root={root}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"LC_ALL": "C"})
    return done.stdout + done.stderr if done.returncode else done.stderr


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with the units, and what they start."""
    root = tmp_path_factory.mktemp("root")
    units = root / "etc" / "systemd" / "system"
    units.mkdir(parents=True)
    for name in NAMES:
        shutil.copy(SYSTEMD / name, units / name)
    for program in ("opt/pgrouse/venv/bin/pgrouse", "bin/kill"):
        (root / program).parent.mkdir(parents=True, exist_ok=True)
        (root / program).write_text("#!/bin/sh\n")
        (root / program).chmod(0o755)
    for target in ("sysinit", "basic", "shutdown", "multi-user", "network-online"):
        folder = root / "usr" / "lib" / "systemd" / "system"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{target}.target").write_text(f"[Unit]\nDescription={target}\n")
    return root


@pytest.mark.parametrize("name", ["pgrouse.service", "pgrouse@mail.service", "pgrouse-web.service"])
def test_systemd_has_nothing_against_a_unit(root: Path, name: str) -> None:
    assert analyze("verify", "--man=no", "--recursive-errors=no", name, root=root) == ""


def test_systemd_finds_a_setting_that_it_does_not_know(root: Path) -> None:
    broken = root / "etc" / "systemd" / "system" / "broken.service"
    broken.write_text(DAEMON.path.read_text().replace("WatchdogSec=30", "WatchDogSec=30"))

    said = analyze("verify", "--man=no", "--recursive-errors=no", "broken.service", root=root)

    broken.unlink()
    assert "WatchDogSec" in said


def test_no_unit_has_more_rights_than_it_needs(root: Path) -> None:
    for name in ("pgrouse.service", "pgrouse@mail.service", "pgrouse-web.service"):
        assert analyze("security", "--offline=yes", f"--threshold={MOST_EXPOSURE}", name, root=root) == ""


def test_an_instance_differs_by_its_configuration_and_nothing_else() -> None:
    differs = {key for key in DAEMON.settings if DAEMON.settings[key] != INSTANCE.settings[key]}

    assert INSTANCE.settings.keys() == DAEMON.settings.keys()
    assert differs == {"Description", "Environment", "EnvironmentFile"}
    assert INSTANCE.environment["PGROUSE_CONFIG"] == "/etc/pgrouse/%i.toml"


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_it_runs_a_command_that_there_is(unit: Unit) -> None:
    program, command = unit.one("ExecStart").split()

    assert program == "/opt/pgrouse/venv/bin/pgrouse"
    assert command in COMMANDS


def test_a_daemon_may_drain_before_it_is_killed() -> None:
    assert (
        int(DAEMON.one("TimeoutStopSec"))
        > WorkerSettings().shutdown_timeout.total_seconds() + CANCEL_S + LAST_SETTLE_S + EXIT_S
    )


def test_only_the_daemon_itself_is_told_to_stop_since_it_tells_its_processes() -> None:
    assert DAEMON.one("KillMode") == "mixed"
    assert DAEMON.one("ExecReload") == "/bin/kill -HUP $MAINPID"


def test_systemd_watches_and_is_told() -> None:
    assert (DAEMON.one("Type"), DAEMON.one("NotifyAccess"), DAEMON.one("WatchdogSec")) == ("notify", "main", "30")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_what_is_hopeless_is_not_begun_again(unit: Unit) -> None:
    assert unit.one("Restart") == "always"
    assert unit.one("RestartPreventExitStatus").split() == [str(int(ExitCode.USAGE)), str(int(ExitCode.BAD_CONFIG))]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_the_password_comes_by_a_file_that_only_the_service_sees(unit: Unit) -> None:
    credential, _, path = unit.one("LoadCredential").partition(":")
    example = configparser.ConfigParser()
    example.read(SYSTEMD / f"{Path(path).name}.example")

    assert unit.environment["PGSERVICEFILE"] == f"%d/{credential}"
    assert example.sections() == [unit.environment["PGSERVICE"]]
    assert not {"PGPASSWORD", "PGROUSE_DSN", "DATABASE_URL"} & unit.environment.keys()
