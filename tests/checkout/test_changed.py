"""./go test --changed: which files count as the change, which tests it can affect, and what is printed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import changed
from tests.file_graph import Tree

CHECKOUT = Path(__file__).parents[2]
PASSING = "def test_{}() -> None: ...\n"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit, of a module, its test and another test."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "a")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "a@example.org")
    write(tmp_path, "daemon/pgrouse/a.py", "")
    write(tmp_path, "tests/test_a.py", "import pgrouse.a\n")
    write(tmp_path, "tests/test_b.py", "")
    git(tmp_path, "init", "-q", "-b", "main")
    commit(tmp_path)
    return tmp_path


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True)


def commit(root: Path) -> None:
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "A change")


class TestChange:
    """Which files are changed."""

    def test_the_change_is_what_differs_from_the_last_commit_and_what_is_new(self, repository: Path) -> None:
        write(repository, "daemon/pgrouse/a.py", "A = 1\n")
        write(repository, "tests/test_ü.py", "")
        (repository / "tests/test_b.py").unlink()

        assert changed.change(repository, "") == ["daemon/pgrouse/a.py", "tests/test_b.py", "tests/test_ü.py"]

    def test_with_nothing_changed_it_is_the_last_commit(self, repository: Path) -> None:
        write(repository, "tests/test_b.py", "B = 1\n")
        commit(repository)

        assert changed.change(repository, "") == ["tests/test_b.py"]

    def test_a_base_makes_it_everything_since_the_branch_left_it(self, repository: Path) -> None:
        git(repository, "checkout", "-q", "-b", "branch")
        write(repository, "tests/test_a.py", "A = 1\n")
        commit(repository)
        git(repository, "checkout", "-q", "main")
        write(repository, "daemon/pgrouse/a.py", "A = 1\n")
        commit(repository)
        git(repository, "checkout", "-q", "branch")
        write(repository, "tests/test_c.py", "")

        assert changed.change(repository, "main") == ["tests/test_a.py", "tests/test_c.py"]

    def test_an_unknown_base_is_an_error_in_one_sentence(self, repository: Path) -> None:
        with pytest.raises(
            SystemExit, match=r"git merge-base failed: .*no-such.*; use: \./go test --changed\[=COMMIT\]"
        ):
            changed.change(repository, "no-such")

    def test_an_unknown_option_is_refused_with_those_that_there_are(self) -> None:
        with pytest.raises(SystemExit, match=r"there is no --changed-base; use: .*--changed-budget=SECONDS"):
            changed.main(["--changed", "--changed-base=main"])


class TestAffected:
    """Which tests are run."""

    def test_a_file_that_all_tests_depend_on_affects_all_and_is_named(
        self, repository: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        write(repository, "uv.lock", "")
        write(repository, "tests/test_b.py", "uv.lock")
        tree = Tree(repository, tuple(changed.files(repository)))

        affected, count = changed.affected_tests(tree, ["uv.lock", "tests/test_b.py"])

        assert (affected, count) == (["tests/test_b.py", "tests/test_a.py"], 2)
        assert "every test can depend on uv.lock\n" in capsys.readouterr().out

    def test_a_file_of_which_no_test_is_known_affects_all(self, repository: Path) -> None:
        write(repository, "LICENSE", "")
        tree = Tree(repository, tuple(changed.files(repository)))

        assert changed.affected_tests(tree, ["LICENSE"])[1] == 2

    def test_only_the_nearest_files_are_collected_and_no_deleted_one(
        self, repository: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(changed, "MOST_TESTS", 2)
        write(repository, "tests/test_b.py", "def test_1(): ...\n")
        write(repository, "tests/test_c.py", "import pgrouse.a\ndef test_1(): ...\n")
        write(repository, "tests/test_d.py", "import tests.test_c\n")
        (repository / "tests/test_a.py").unlink()
        tree = Tree(repository, tuple(changed.files(repository)))

        affected, count = changed.affected_tests(tree, ["daemon/pgrouse/a.py", "tests/test_a.py", "tests/test_b.py"])

        assert (affected, count) == (["tests/test_b.py", "tests/test_c.py"], 3)


class TestRun:
    """How pytest runs them."""

    @pytest.mark.long
    @pytest.mark.parametrize("processes", ["0", "2"])
    def test_the_nearest_run_first_whatever_is_marked_slow_and_the_last_line_says_how_much_ran(
        self, tmp_path: Path, processes: str
    ) -> None:
        write(tmp_path, "test_near.py", PASSING.format("near"))
        write(tmp_path, "test_far.py", f"import pytest\n@pytest.mark.slow\n{PASSING.format('far')}")
        write(tmp_path, "conftest.py", SLOW_FIRST)

        done = run(tmp_path, "-n", processes, "-v", "test_near.py", "test_far.py")

        assert done.returncode == 0, done.stdout
        assert done.stdout.splitlines()[-1] == (
            "changed: ran 2 tests of the nearest 2 files, of 1,480 that the change can affect; "
            "./go test --full runs them all"
        )
        if processes == "0":
            assert done.stdout.index("test_near.py::") < done.stdout.index("test_far.py::")

    @pytest.mark.long
    @pytest.mark.parametrize("processes", ["0", "2"])
    def test_after_the_budget_only_tests_of_the_nearest_file_begin_and_the_run_is_no_failure(
        self, tmp_path: Path, processes: str
    ) -> None:
        for name in ("test_near.py", "test_far.py", "test_farther.py"):
            write(tmp_path, name, AT_THE_END + PASSING.format("later"))

        done = run(tmp_path, "-n", processes, "test_near.py", "test_far.py", "test_farther.py")

        tests, files = (2, 1) if processes == "0" else (3, 2)
        assert done.returncode == 0, done.stdout
        assert done.stdout.splitlines()[-1].startswith(f"changed: ran {tests} tests of the nearest {files} files,")


# The budget ends while this test runs.
AT_THE_END = "from tests import changed\ndef test_at_the_end() -> None: changed.now = lambda: float('inf')\n"
SLOW_FIRST = """
import pytest

@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest with the plugin on files of a folder."""
    write(folder, "pytest.ini", "[pytest]\naddopts = --dist=loadfile --no-loadscope-reorder\nmarkers = slow: is so\n")
    plugin = ["-p", "tests.changed", f"--changed-until={time.time() + 3600}", "--changed-files=1480"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *plugin, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        check=False,
    )
