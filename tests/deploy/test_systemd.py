"""deploy/systemd: systemd accepts the units, they are hardened, and match how the daemon starts, reloads and stops."""

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
from pgrouse.worker.process_exit import EXIT_S
from pgrouse.worker.service import CANCEL_S, LAST_SETTLE_S
from tests.deploy.pipeline import parsed
from tests.deploy.unit import JOBS, NAMES, SYSTEMD, Unit

# As systemd-analyze counts: 0 has no privileges, from 2.5 on it is medium.
MOST_EXPOSURE = 20

DAEMON = Unit("pgrouse.service")
INSTANCE = Unit("pgrouse@.service")
WEB = Unit("pgrouse-web.service")
UNITS = [DAEMON, INSTANCE, WEB]
PIPELINE = [Unit(f"pgrouse-{job}.service") for job in JOBS]


def analyze(*arguments: str | Path, root: Path) -> str:
    """Run systemd-analyze on the units below a root folder; return its complaints."""
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed: sudo apt-get install systemd")
    command = ["systemd-analyze", *map(str, arguments), f"--root={root}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"LC_ALL": "C"})
    return done.stdout + done.stderr if done.returncode else done.stderr


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root folder with the units, and the programs they start."""
    root = tmp_path_factory.mktemp("root")
    units = root / "etc" / "systemd" / "system"
    units.mkdir(parents=True)
    for name in NAMES:
        shutil.copy(SYSTEMD / name, units / name)
    for program in ("opt/pgrouse/venv/bin/pgrouse", "bin/kill"):
        (root / program).parent.mkdir(parents=True, exist_ok=True)
        (root / program).write_text("#!/bin/sh\n")
        (root / program).chmod(0o755)
    for target in ("sysinit", "basic", "shutdown", "multi-user", "network-online", "timers", "time-set", "time-sync"):
        folder = root / "usr" / "lib" / "systemd" / "system"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{target}.target").write_text(f"[Unit]\nDescription={target}\n")
    return root


# A template is checked by an instance of it.
INSTANCES = [name.replace("@", "@mail") for name in NAMES]


@pytest.mark.parametrize("name", INSTANCES)
def test_systemd_accepts_each_unit(root: Path, name: str) -> None:
    assert analyze("verify", "--man=no", "--recursive-errors=no", name, root=root) == ""


def test_no_unit_has_more_rights_than_it_needs(root: Path) -> None:
    for name in [each for each in INSTANCES if each.endswith(".service")]:
        assert analyze("security", "--offline=yes", f"--threshold={MOST_EXPOSURE}", name, root=root) == ""


def test_an_instance_differs_only_by_its_configuration() -> None:
    differs = {key for key in DAEMON.settings if DAEMON.settings[key] != INSTANCE.settings[key]}

    assert INSTANCE.settings.keys() == DAEMON.settings.keys()
    assert differs == {"Description", "Environment", "EnvironmentFile"}
    assert INSTANCE.environment["PGROUSE_CONFIG"] == "/etc/pgrouse/%i.toml"


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_each_unit_runs_an_existing_command(unit: Unit) -> None:
    program, command = unit.one("ExecStart").split()

    assert program == "/opt/pgrouse/venv/bin/pgrouse"
    assert command in COMMANDS


def test_a_daemon_has_time_to_drain_before_it_is_killed() -> None:
    assert (
        int(DAEMON.one("TimeoutStopSec"))
        > WorkerSettings().shutdown_timeout.total_seconds() + CANCEL_S + LAST_SETTLE_S + EXIT_S
    )


def test_the_stop_signal_goes_only_to_the_daemon_which_stops_its_processes() -> None:
    assert DAEMON.one("KillMode") == "mixed"
    assert DAEMON.one("ExecReload") == "/bin/kill -HUP $MAINPID"


def test_systemd_watches_and_is_notified() -> None:
    assert (DAEMON.one("Type"), DAEMON.one("NotifyAccess"), DAEMON.one("WatchdogSec")) == ("notify", "main", "30")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_permanent_error_is_not_restarted(unit: Unit) -> None:
    assert unit.one("Restart") == "always"
    assert unit.one("RestartPreventExitStatus").split() == [str(int(ExitCode.USAGE)), str(int(ExitCode.BAD_CONFIG))]


@pytest.mark.parametrize("unit", PIPELINE, ids=lambda unit: unit.name)
def test_a_job_of_the_pipeline_ends_and_is_tried_again_only_if_that_may_help(unit: Unit) -> None:
    program, group, job, *arguments = unit.one("ExecStart").split()

    assert (program, group, job) == ("/opt/pgrouse/venv/bin/pgrouse", "pipeline", unit.name.split("-")[1].split(".")[0])
    assert parsed(job, arguments)
    assert (unit.one("Type"), unit.one("Restart")) == ("oneshot", "on-failure")
    assert ExitCode.TRY_AGAIN not in map(int, unit.one("RestartPreventExitStatus").split())
    assert ExitCode.BAD_CONFIG in map(int, unit.one("RestartPreventExitStatus").split())


@pytest.mark.parametrize("unit", [*UNITS, *PIPELINE], ids=lambda unit: unit.name)
def test_the_password_comes_from_a_file_that_only_the_service_can_read(unit: Unit) -> None:
    credential, _, path = unit.one("LoadCredential").partition(":")
    example = configparser.ConfigParser()
    example.read(SYSTEMD / f"{Path(path).name}.example")

    assert unit.environment["PGSERVICEFILE"] == f"%d/{credential}"
    assert example.sections() == [unit.environment["PGSERVICE"]]
    assert not {"PGPASSWORD", "PGROUSE_DSN", "DATABASE_URL"} & unit.environment.keys()
