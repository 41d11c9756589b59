"""./go: what a checkout can do on a machine with only python3."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

SCRIPT = Path(__file__).parents[2] / "go"


@pytest.fixture
def go() -> ModuleType:
    """The script as a module, whose names a test may replace."""
    spec = spec_from_loader("go", SourceFileLoader("go", str(SCRIPT)))
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, check=False)


class TestCommands:
    """The arguments, and the errors of unknown ones."""

    def test_go_without_a_command_shows_the_commands_as_an_error(self) -> None:
        output = run()

        assert (output.returncode, output.stdout) == (2, "")
        assert "./go demo" in output.stderr

    @pytest.mark.parametrize("command", ["check", "clean"])
    def test_an_argument_that_a_command_does_not_take_is_refused(self, command: str) -> None:
        output = run(command, "--help")

        assert output.returncode == 2
        assert f"`{command}` does not take --help" in output.stderr


class TestCheck:
    """The static checks, and those of a commit."""

    @pytest.mark.parametrize(
        ("arguments", "programs"),
        [
            ([], ["ruff", "ruff", "lint-imports", "squawk", "python", "mypy", "python"]),
            (["--fast"], ["ruff", "ruff", "lint-imports", "squawk", "python"]),
        ],
    )
    def test_fast_leaves_out_the_types(
        self, go: Any, monkeypatch: pytest.MonkeyPatch, arguments: list[str], programs: list[str]
    ) -> None:
        ran: list[str] = []
        monkeypatch.setattr(go, "install", lambda _: None)
        monkeypatch.setattr(go, "passes", lambda check: ran.append(check[0]) or True)

        with pytest.raises(SystemExit, match="0"):
            go.check(arguments)

        assert ran == programs

    def test_a_commit_runs_the_fast_ones_and_fetches_no_hooks_of_others(self) -> None:
        config = yaml.safe_load((SCRIPT.parent / ".pre-commit-config.yaml").read_text())

        assert [each["repo"] for each in config["repos"]] == ["local"]
        assert [hook["entry"] for hook in config["repos"][0]["hooks"]] == ["./go check --fast"]


class TestTest:
    """How it starts the tests."""

    def test_every_test_on_spark_that_is_not_long_is_in_the_folder_of_the_round_on_spark(self, go: Any) -> None:
        folder = go.FULL[0][-1]
        marked = {each for each in SCRIPT.parent.glob("tests/**/test_*.py") if "mark.spark" in each.read_text()}

        elsewhere = [each for each in marked if not each.is_relative_to(SCRIPT.parent / folder)]
        assert [each for each in elsewhere if "mark.long" not in each.read_text()] == []
        assert len(marked) > len(elsewhere)

    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            (["tests/sql", "-x"], [["pytest", "tests/sql", "-x"]]),
            (["--changed"], [["tests.changed", "--changed"]]),
            (["--changed=main", "-x"], [["tests.changed", "--changed=main", "-x"]]),
            (
                ["--full"],
                [
                    ["pytest", "-n", "2", "-m", "spark and not long", "tests/pipeline"],
                    ["pytest", "-n", "auto", "-m", "not spark and not long"],
                ],
            ),
            (
                [],
                [
                    ["pytest", "-n", "2", "-m", "promise and spark and not long", "tests/pipeline"],
                    ["pytest", "-n", "auto", "-m", "promise and not spark and not long"],
                ],
            ),
        ],
    )
    def test_arguments_choose_what_runs_them(
        self, go: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], expected: list[list[str]]
    ) -> None:
        python = tmp_path / "bin" / "python"
        python.parent.mkdir()
        python.write_text(
            '#!/bin/sh\nfor each; do printf "%s\\t" "$each" >>"${0%/bin/*}/called"; done; echo >>"${0%/bin/*}/called"\n'
        )
        python.chmod(0o755)
        monkeypatch.setattr(go, "VENV", tmp_path)
        monkeypatch.setattr(go, "compile_tests", lambda _: None)
        monkeypatch.setattr(go, "install", lambda _: None)
        monkeypatch.setattr(go.os, "geteuid", lambda: 1000)
        monkeypatch.setattr(go, "missing_debian_packages", lambda _: [])

        with pytest.raises(SystemExit, match="0"):
            go.test(arguments)

        assert [line.split("\t")[1:-1] for line in (tmp_path / "called").read_text().splitlines()] == expected


class TestPython:
    """The Python that it runs on."""

    def test_python_3_7_can_parse_the_script(self) -> None:
        ast.parse(SCRIPT.read_text(), feature_version=(3, 7))

    def test_an_older_python_is_refused_in_one_sentence(self) -> None:
        as_old = f"import sys; sys.version_info = (3, 9, 2); exec(open({str(SCRIPT)!r}).read())"

        output = subprocess.run([sys.executable, "-c", as_old], capture_output=True, text=True, check=False)

        assert (output.returncode, output.stdout) == (1, "")
        assert output.stderr.splitlines() == [
            "go: python3 is 3.9, but pgrouse needs 3.11 or newer: run this with one, as `python3.11 go demo`"
        ]


class TestUv:
    """How it gets uv."""

    @pytest.mark.parametrize(
        ("system", "machine", "libc", "mac", "expected"),
        [
            ("linux", "x86_64", ("glibc", "2.36"), "", "manylinux_2_17_x86_64"),
            ("linux", "aarch64", ("glibc", "2.36"), "", "manylinux_2_17_aarch64"),
            ("linux", "x86_64", ("", ""), "", "musllinux_1_1_x86_64"),
            ("linux", "aarch64", ("", ""), "", "musllinux_1_1_aarch64"),
            ("darwin", "arm64", ("", ""), "14.5", "macosx_11_0_arm64"),
            ("darwin", "x86_64", ("", ""), "13.0", "macosx_10_12_x86_64"),
        ],
    )
    def test_the_lock_file_has_a_wheel_for_each_system(
        self,
        go: Any,
        monkeypatch: pytest.MonkeyPatch,
        system: str,
        machine: str,
        libc: tuple[str, str],
        mac: str,
        expected: str,
    ) -> None:
        monkeypatch.setattr(sys, "platform", system)
        monkeypatch.setattr(platform, "machine", lambda: machine)
        monkeypatch.setattr(platform, "libc_ver", lambda: libc)
        monkeypatch.setattr(platform, "mac_ver", lambda: (mac, ("", "", ""), machine))

        wheel = go.wheel_for_here(go.locked_uv()["wheels"])

        assert expected in wheel["url"]

    def test_a_system_without_a_wheel_gets_the_advice_to_install_its_own(
        self, go: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(platform, "machine", lambda: "vax")

        with pytest.raises(SystemExit, match=r"no uv for .* on vax: install uv by other means"):
            go.wheel_for_here(go.locked_uv()["wheels"])

    def test_a_wheel_with_another_hash_is_refused(self, go: Any, tmp_path: Path) -> None:
        wheel = self.wheel(tmp_path) | {"hash": "sha256:" + "0" * 64}

        with pytest.raises(SystemExit, match=r"is not what uv\.lock says"):
            go.fetch(wheel, tmp_path / "cache" / "uv")

        assert not (tmp_path / "cache").exists()

    def test_an_unreachable_address_is_named_with_the_fix(self, go: Any, tmp_path: Path) -> None:
        with pytest.raises(SystemExit, match=r"127\.0\.0\.1:1/uv\.whl cannot be fetched .* install uv by other means"):
            go.fetch({"url": "http://127.0.0.1:1/uv.whl", "hash": ""}, tmp_path / "uv")

    @pytest.mark.parametrize(
        ("version", "taken"), [("0.13.8", True), ("0.14.0", True), ("0.13.7", False), ("0.9.21", False)]
    )
    def test_uv_on_path_is_used_unless_it_is_older_than_the_locked_one(
        self, go: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, taken: bool
    ) -> None:
        on_path, fetched = tmp_path / "bin" / "uv", tmp_path / "cache" / "uv-0.13.8" / "uv"
        for program in (on_path, fetched):
            program.parent.mkdir(parents=True)
            program.write_text(f"#!/bin/sh\necho 'uv {version} (1a2b3c 2026-10-01)'\n")
            program.chmod(0o755)
        monkeypatch.setenv("PATH", str(on_path.parent), prepend=":")
        monkeypatch.setattr(go, "CACHE", tmp_path / "cache")
        monkeypatch.setattr(go, "locked_uv", lambda: {"version": "0.13.8", "wheels": []})

        assert go.uv() == str(on_path if taken else fetched)

    def test_the_script_itself_names_no_host(self) -> None:
        assert "://" not in SCRIPT.read_text()

    @staticmethod
    def wheel(folder: Path) -> dict[str, str]:
        """Make a wheel with a program that claims to be uv, and return its entry in a lock file."""
        file = folder / "uv.whl"
        with zipfile.ZipFile(file, "w") as wheel:
            wheel.writestr("uv-0.13.8.data/scripts/uv", "#!/bin/sh\necho 'uv 0.13.8'\n")
        return {"url": file.as_uri(), "hash": f"sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}"}


class TestInstall:
    """What is installed, and when nothing is."""

    @pytest.fixture
    def checkout(self, go: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
        """`go` in a checkout whose uv only records its calls; `checkout.calls()` returns them."""
        python = tmp_path / ".venv" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.touch()
        (tmp_path / "uv.lock").write_text("one")
        (tmp_path / "pyproject.toml").write_text(
            "[project.optional-dependencies]\ndemo = []\nspark = []\n[dependency-groups]\ntest = []\n"
        )
        log = tmp_path / "log"
        uv = tmp_path / "uv"
        uv.write_text(f'#!/bin/sh\necho "$@" >> {log}\n')
        uv.chmod(0o755)
        for name, value in {
            "ROOT": tmp_path,
            "VENV": tmp_path / ".venv",
            "INSTALLED": tmp_path / ".venv" / "installed.json",
        }.items():
            monkeypatch.setattr(go, name, value)
        monkeypatch.setattr(go, "uv", lambda: str(uv))
        monkeypatch.setattr(go, "calls", lambda: [line.split() for line in log.read_text().splitlines()], raising=False)
        return go

    def test_an_up_to_date_environment_is_not_installed_again(self, checkout: Any) -> None:
        checkout.install(["--extra=demo"])
        checkout.install(["--extra=demo"])

        assert len(checkout.calls()) == 1

    def test_a_command_with_more_groups_keeps_those_of_others(self, checkout: Any) -> None:
        checkout.install(["--extra=demo"])
        checkout.install(["--group=test"])
        checkout.install(["--extra=demo"])

        wanted = [[word for word in call if word.startswith(("--extra", "--group"))] for call in checkout.calls()]
        assert wanted == [["--extra=demo"], ["--extra=demo", "--group=test"]]

    def test_an_extra_that_is_gone_is_not_asked_for(self, checkout: Any) -> None:
        checkout.install(["--extra=spark"])
        (checkout.ROOT / "pyproject.toml").write_text(
            "[project.optional-dependencies]\ndemo = []\n[dependency-groups]\ntest = []\n"
        )
        checkout.install(["--extra=demo"])

        assert [word for word in checkout.calls()[-1] if word.startswith("--extra")] == ["--extra=demo"]

    def test_a_failed_installation_is_repeated(self, checkout: Any) -> None:
        uv = Path(checkout.uv())
        works = uv.read_text()
        uv.write_text(works + "exit 1\n")
        with pytest.raises(SystemExit, match="uv could not install"):
            checkout.install(["--extra=demo"])
        uv.write_text(works)

        checkout.install(["--extra=demo"])

        assert len(checkout.calls()) == 2
        assert json.loads(checkout.INSTALLED.read_text())["parts"] == ["--extra=demo"]


class TestDebian:
    """Debian's packages."""

    def test_only_missing_packages_are_named(self, go: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "15").mkdir()
        (tmp_path / "15" / "postgres").touch()
        monkeypatch.setattr(go.shutil, "which", lambda name: f"/usr/bin/{name}")
        monkeypatch.setattr(go, "postgresql_version", lambda: "15")

        missing = go.missing_debian_packages(
            {"postgresql-{}": f"{tmp_path}/{{}}/postgres", "postgresql-{}-cron": f"{tmp_path}/{{}}/pg_cron.so"}
        )

        assert missing == ["postgresql-15-cron"]

    def test_a_failure_of_apt_get_is_reported_and_the_command_continues(
        self, go: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "apt-get").write_text("#!/bin/sh\necho 'E: Unable to locate package spin'\nexit 100\n")
        (tmp_path / "apt-get").chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        monkeypatch.setattr(go, "CLUSTER_CONF", tmp_path / "createcluster.d" / "pgrouse.conf")

        go.install_debian_packages({"spin": "/nowhere/spin"})

        output = capsys.readouterr().err
        assert "apt-get install spin\n" in output
        assert "apt-get install failed, going on without:\nE: Unable to locate package spin" in output
        assert not go.CLUSTER_CONF.exists()

    @pytest.mark.parametrize("arguments", [[], ["--full"]])
    def test_what_was_left_out_or_skipped_is_reported_last_with_the_commands(
        self,
        go: Any,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        arguments: list[str],
    ) -> None:
        python = tmp_path / "bin" / "python"
        python.parent.mkdir()
        python.write_text("#!/bin/sh\nexit 3\n")
        python.chmod(0o755)
        monkeypatch.setattr(go, "VENV", tmp_path)
        monkeypatch.setattr(go, "install", lambda _: None)
        monkeypatch.setattr(go.os, "geteuid", lambda: 1000)
        monkeypatch.setattr(go, "missing_debian_packages", lambda _: ["spin", "gcc"])

        with pytest.raises(SystemExit, match="3"):
            go.test(arguments)

        *_, left_out, skipped = capsys.readouterr().err.splitlines()
        assert left_out.endswith("what takes long: ./go test -n auto -m long; on every server: .ci/run all")
        assert ("what shows no promise: ./go test --full;" in left_out) == (not arguments)
        assert skipped == "go: tests were skipped that need Debian packages; to run them: sudo apt-get install spin gcc"

    def test_the_tests_compile_what_they_import_once_and_into_the_environment(
        self, go: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        python = tmp_path / "bin" / "python"
        python.parent.mkdir()
        python.write_text(
            '#!/bin/sh\n[ "$PYTHONPYCACHEPREFIX${PYTHONDONTWRITEBYTECODE+set}" = "${0%/bin/*}/pycache" ]\n'
        )
        python.chmod(0o755)
        monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
        monkeypatch.setattr(go, "VENV", tmp_path)
        monkeypatch.setattr(go, "install", lambda _: None)
        monkeypatch.setattr(go, "missing_debian_packages", lambda _: [])

        with pytest.raises(SystemExit) as ended:
            go.test(["tests"])

        assert ended.value.code == 0

    def test_debian_creates_no_server_during_the_installation(
        self, go: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(go, "CLUSTER_CONF", tmp_path / "createcluster.d" / "pgrouse.conf")

        with go.no_default_cluster():
            during = go.CLUSTER_CONF.read_text()

        assert during == "create_main_cluster = false\n"
        assert not go.CLUSTER_CONF.exists()


class TestCi:
    """.ci/run in a folder whose ./go only notes its arguments."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        (tmp_path / ".ci").mkdir()
        shutil.copy(SCRIPT.parent / ".ci" / "run", tmp_path / ".ci" / "run")
        stub = tmp_path / "go"
        stub.write_text('#!/bin/sh\necho "$* $PGROUSE_TEST_NO_SKIP $PGROUSE_TEST_PG" >>called\n[ "$1" != "$FAILS" ]\n')
        stub.chmod(0o755)
        return tmp_path

    @pytest.mark.parametrize(("fails", "code"), [("", 0), ("check", 1), ("test", 1), ("release", 1)])
    def test_each_command_runs_and_one_that_fails_is_told(self, folder: Path, fails: str, code: int) -> None:
        done, called = self.run(folder, fails)

        assert [words[0] for words in called] == ["check", "release", "test"]
        assert called[2] == ["test", "--full", "1"]
        assert done.returncode == code
        assert ("ci: failed: " in done.stderr) == bool(fails)
        timed = [match[1] for line in done.stdout.splitlines() if (match := re.match(r" +\d+ s  (.*)", line))]
        bare = [line for line in timed if "bare-machine" in line]
        assert [line.split()[1] for line in timed if line not in bare] == ["check", "release", "test"]
        assert [line.partition("bare-machine ")[2].split()[:2] for line in bare] == [
            ["root", "demo"],
            ["user", "demo"],
            ["user", "test"],
        ]

    def test_without_a_container_engine_it_fails(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("NO_ENGINE", "1")

        done, called = self.run(folder, "")

        assert (done.returncode, len(called)) == (1, 3)
        assert "ci: failed: nothing runs on a bare machine: there is no container engine" in done.stderr

    def test_at_night_it_runs_on_all_servers_and_what_takes_minutes(self, folder: Path) -> None:
        _, called = self.run(folder, "", "all")

        assert [" ".join(each) for each in called[2:]] == [
            "test --full 1 all",
            "test -n auto -m long and not spark 1 all",
            "test -m long and spark 1 all",
        ]

    @staticmethod
    def run(folder: Path, fails: str, *arguments: str) -> tuple[subprocess.CompletedProcess[str], list[list[str]]]:
        """Run the script where no container engine answers; return how it ended, and the calls of ./go."""
        (folder / ".ci" / "bare-machine").write_text("#!/bin/sh\n")
        (folder / ".ci" / "bare-machine").chmod(0o755)
        (folder / "docker").write_text('#!/bin/sh\n[ -z "$NO_ENGINE" ]\n')
        (folder / "docker").chmod(0o755)
        environ = {**os.environ, "FAILS": fails, "PATH": f"{folder}:{os.environ['PATH']}", "PGROUSE_TEST_PG": ""}
        done = subprocess.run(
            [folder / ".ci" / "run", *arguments], capture_output=True, text=True, check=False, env=environ
        )
        return done, [line.split() for line in (folder / "called").read_text().splitlines()]
