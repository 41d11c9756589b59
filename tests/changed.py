"""`./go test --changed`: the tests that a change can affect, nearest first, for about a minute.

The change is what differs from the last commit, or that commit if nothing does; with `--changed=main`, everything since
the branch left main. After `--changed-budget` seconds (50) no further test begins, except those of the nearest file. As
a plugin of pytest this module keeps the order and the budget.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from tests.file_graph import Tree

ROOT = Path(__file__).parents[1]
BUDGET_S = 50.0
# As many functions are collected: in each process that takes time too, and a minute is not enough to run more.
MOST_TESTS = 300
# Each process starts servers of its own, so there are fewer than in a run of all tests. Later arguments replace these.
USUAL = ("-n", str((os.cpu_count() or 1) + 1), "-m", "not spark and not long")
# All tests depend on these.
OF_ALL_TESTS = ("uv.lock", "pyproject.toml", "go", "tests/conftest.py", "tests/server/")
# A name of its own: tests replace it.
now = time.time
USAGE = "use: ./go test --changed[=COMMIT] [--changed-budget=SECONDS] [arguments of pytest]"


def main(arguments: list[str]) -> NoReturn:
    """Run pytest with the files that the change can affect."""
    started = now()
    options = dict(each.partition("=")[::2] for each in arguments if each.startswith("--changed"))
    if unknown := options.keys() - {"--changed", "--changed-budget"}:
        sys.exit(f"changed: there is no {', '.join(unknown)}; {USAGE}")
    changed = change(ROOT, options.get("--changed", ""))
    affected, count = affected_tests(Tree(ROOT, tuple(files(ROOT))), changed)
    if not affected:
        sys.exit("changed: nothing is changed, so no test is affected")
    until = started + float(options.get("--changed-budget") or BUDGET_S)
    given = [each for each in arguments if not each.startswith("--changed")]
    plugin = ["-p", "tests.changed", f"--changed-until={until}", f"--changed-files={count}", *given, *affected]
    pytest_command = [sys.executable, "-m", "pytest", *plugin, *USUAL, *given, *affected]
    sys.exit(subprocess.run(pytest_command, check=False, cwd=ROOT).returncode)


def affected_tests(tree: Tree, changed: list[str]) -> tuple[list[str], int]:
    """Return the files of tests to run, nearest first, and how many there would be. Tells what the change is."""
    affected = list(tree.nearest_tests(changed))
    print(f"changed: {', '.join(changed)}"[:500])
    if of_all := [path for path in changed if concerns_all_tests(tree, path)]:
        affected += sorted(tree.tests - set(affected), key=tree.effort)
        print(f"changed: every test can depend on {', '.join(of_all)}"[:500])
    there = [path for path in affected if (tree.root / path).exists()]
    return list(nearest(tree, there)), len(there)


def nearest(tree: Tree, tests: list[str]) -> Iterator[str]:
    """Yield the first files, up to the one with which there are enough tests."""
    count = 0
    for path in tests:
        if count >= MOST_TESTS:
            return
        yield path
        count += tree.text(path).count("def test_")


def concerns_all_tests(tree: Tree, path: str) -> bool:
    """Return whether all tests depend on a file, or it is not known which."""
    return path.startswith(OF_ALL_TESTS) or not (path in tree.tests or tree.dependents.get(path))


def files(root: Path) -> list[str]:
    """Return the files of a checkout, except those that git ignores; with those that the work tree has no more."""
    return git(root, "ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate")


def change(root: Path, base: str) -> list[str]:
    """Return the files that differ from where the branch left `base`.

    Without it, return those that differ from the last commit, or else those of that commit.
    """
    untracked = git(root, "ls-files", "--others", "--exclude-standard")
    since = git(root, "merge-base", base, "HEAD")[0] if base else "HEAD"
    found = git(root, "diff", "--name-only", "--no-renames", since) + untracked
    return found or git(root, "show", "--format=", "--first-parent", "--name-only", "--no-renames", "HEAD")


def git(root: Path, *arguments: str) -> list[str]:
    """Return the lines that a command of git prints."""
    done = subprocess.run(
        ["git", "-c", "core.quotePath=false", *arguments], cwd=root, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        sys.exit(f"changed: git {arguments[0]} failed: {done.stderr.strip()}; {USAGE}")
    return done.stdout.splitlines()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--changed-until", type=float, default=None, help="no test begins after this time")
    parser.addoption("--changed-files", type=int, default=0, help="how many files of tests the change can affect")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--changed-until", None) is not None:
        config.pluginmanager.register(Budget(config.getoption("--changed-until"), config.getoption("--changed-files")))


class Budget:
    """Keeps the order of the files, and begins no test after the end of the budget.

    Args:
        until: the end of the budget, as time.time() tells it.
        affected: how many files of tests the change can affect.
    """

    def __init__(self, until: float, affected: int) -> None:
        self._until = until
        self._affected = affected
        self._tests: set[str] = set()
        self._nearest: Path | None = None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None]:
        """Put the nearest tests first again, after others have put theirs first."""
        order = {item.nodeid: number for number, item in enumerate(items)}
        yield
        items.sort(key=lambda item: order[item.nodeid])
        self._nearest = items[0].path if items else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        """Leave a test out at the end of the budget.

        In the process that runs it, so that this ends as usual and stops its servers.
        """
        return True if now() > self._until and item.path != self._nearest else None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._tests.add(report.nodeid)

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        """Tell last how much was run. With several processes the one that started the others does."""
        if not hasattr(config, "workerinput"):
            ran = {test.partition("::")[0] for test in self._tests}
            print(
                f"changed: ran {len(self._tests):,} tests of the nearest {len(ran):,} files, "
                f"of {self._affected:,} that the change can "
                "affect; ./go test --full runs them all"
            )


if __name__ == "__main__":
    main(sys.argv[1:])
