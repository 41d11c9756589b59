"""Which tests a change of a file can affect: by imports, names of SQL, mentions and places, nearest first."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.file_graph import Tree

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A made-up checkout."""
    return make(
        tmp_path,
        {
            "daemon/pgrouse/__init__.pyi": "from pgrouse.client.wait import wait_for as wait_for\n",
            "daemon/pgrouse/backoff.py": "",
            "daemon/pgrouse/client/__init__.py": "",
            "daemon/pgrouse/client/calls.py": "@binding\ndef stats() -> None: ...\n",
            "daemon/pgrouse/client/wait.py": (
                "from pgrouse.backoff import (\n    pause_s,  # in seconds\n    other,\n)\n"
            ),
            "daemon/pgrouse/sinks/__init__.py": "",
            "daemon/pgrouse/sinks/mail.py": "",
            "deploy/pgrouse.service": "",
            "docs/claims.md": "`SELECT messages.claim(1)`",
            "docs/other.md": "`mail.py` has no page",
            "sql/claim/claim.sql": "CREATE OR REPLACE FUNCTION messages.claim(\nAS $$ SELECT messages.pick(1) $$;\n",
            "sql/claim/pick.sql": "CREATE FUNCTION messages.pick(\n",
            "sql/migrations/0001_message.sql": "CREATE TABLE messages.message (\n",
            "sql/stats/stats.sql": "CREATE FUNCTION messages.stats(\n",
            "tests/conftest.py": "",
            "tests/daemon/conftest.py": "from tests.daemon import fleet\n",
            "tests/daemon/fleet.py": "from pgrouse import wait_for\n",
            "tests/django/suite/pytest.ini": "",
            "tests/django/suite/test_tasks.py": "from pgrouse.backoff import pause_s\n",
            "tests/django/test_projects.py": 'FOLDER = HERE / "suite"\n',
            "tests/daemon/test_crash.py": "def test(fleet): ...\n",
            "tests/daemon/deep/test_deep.py": "",
            "tests/deploy/test_unit.py": 'FILE = ROOT / "deploy" / "pgrouse.service"\n',
            "tests/docs/test_pages.py": "",
            "tests/sql/test_claim.py": "",
            "tests/sql/claim/test_turns.py": "",
            "tests/sql/test_order.py": 'db.execute("SELECT messages.claim(1)")\n',
            "tests/sql/test_table.py": 'db.execute("SELECT FROM messages.message")\n',
            "tests/test_calls.py": "from pgrouse.client import calls\n",
            "tests/test_sinks.py": 'find("pgrouse.sinks")\n',
            "tests/test_string.py": 'HANDLER = """\nimport pgrouse.client.wait\n"""\n',
            "tests/unit/test_backoff.py": "from pgrouse.backoff import pause_s\n",
            "tests/unit/test_polls.py": 'monkeypatch.setattr("pgrouse.client.wait.Waiter.poll_s", 1)\n',
        },
    )


def make(root: Path, texts: dict[str, str]) -> Tree:
    for path, text in texts.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return Tree(root, tuple(texts))


@cache
def checkout() -> Tree:
    """The graph of the real files."""
    listed = subprocess.run(["git", "ls-files"], cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout
    return Tree(CHECKOUT, tuple(listed.splitlines()))


class TestRules:
    """Which file depends on which."""

    @pytest.mark.parametrize(
        ("changed", "test"),
        [
            ("daemon/pgrouse/backoff.py", "tests/unit/test_backoff.py"),  # an import
            ("daemon/pgrouse/client/wait.py", "tests/test_string.py"),  # an import in a handler's code
            ("daemon/pgrouse/client/wait.py", "tests/unit/test_polls.py"),  # a name inside the module
            ("daemon/pgrouse/client/__init__.py", "tests/test_calls.py"),  # the package of a module
            ("sql/claim/claim.sql", "tests/sql/test_order.py"),  # a function in a statement
            ("sql/claim/claim.sql", "tests/sql/test_claim.py"),  # the name of the file
            ("sql/claim/pick.sql", "tests/sql/claim/test_turns.py"),  # its folder
            ("sql/migrations/0001_message.sql", "tests/sql/test_table.py"),  # a table in a statement
            ("deploy/pgrouse.service", "tests/deploy/test_unit.py"),  # the name of a file
            ("docs/other.md", "tests/docs/test_pages.py"),  # the folder of the pages
            ("tests/django/suite/test_tasks.py", "tests/django/test_projects.py"),  # the name of a project's folder
            ("tests/daemon/conftest.py", "tests/daemon/deep/test_deep.py"),  # fixtures of the folder above
            ("tests/daemon/conftest.py", "tests/daemon/test_crash.py"),  # fixtures of its folder
        ],
    )
    def test_a_test_depends_directly_on(self, tree: Tree, changed: str, test: str) -> None:
        assert tree.nearest_tests([changed])[test] == 1

    @pytest.mark.parametrize(
        ("changed", "test", "distance"),
        [
            ("sql/stats/stats.sql", "tests/test_calls.py", 2),  # by the binding
            ("sql/claim/claim.sql", "tests/docs/test_pages.py", 2),  # by the page that names it
            ("sql/claim/pick.sql", "tests/sql/test_order.py", 2),  # by the function that calls it
            ("daemon/pgrouse/sinks/mail.py", "tests/test_sinks.py", 2),  # by the package that looks into its folder
            (
                "daemon/pgrouse/client/wait.py",
                "tests/daemon/test_crash.py",
                3,
            ),  # by a public name, a module and a fixture
        ],
    )
    def test_a_test_depends_on_what_others_depend_on(self, tree: Tree, changed: str, test: str, distance: int) -> None:
        assert tree.nearest_tests([changed])[test] == distance

    def test_a_changed_test_is_nearest_and_one_without_a_path_to_the_change_is_left_out(self, tree: Tree) -> None:
        nearest = tree.nearest_tests(["tests/unit/test_polls.py", "daemon/pgrouse/backoff.py"])

        assert list(nearest)[:2] == ["tests/unit/test_polls.py", "tests/unit/test_backoff.py"]
        assert "tests/test_sinks.py" not in nearest

    def test_tests_of_a_project_of_its_own_are_run_by_those_that_name_it(self, tree: Tree) -> None:
        nearest = tree.nearest_tests(["daemon/pgrouse/backoff.py"])

        assert nearest["tests/django/test_projects.py"] == 2
        assert "tests/django/suite/test_tasks.py" not in nearest

    def test_a_deleted_file_affects_what_still_names_it(self, tree: Tree) -> None:
        (tree.root / "daemon/pgrouse/backoff.py").unlink()

        assert "tests/unit/test_backoff.py" in tree.nearest_tests(["daemon/pgrouse/backoff.py"])

    def test_of_tests_equally_near_those_of_its_name_come_first_then_quick_ones(self, tmp_path: Path) -> None:
        mention = '"SELECT messages.claim(1)"'
        tree = make(
            tmp_path,
            {
                "sql/claim.sql": "CREATE FUNCTION messages.claim(",
                "tests/daemon/test_a.py": mention,
                "tests/sql/test_long.py": mention + "#" * 100,
                "tests/sql/test_slow.py": f"{mention}\n@pytest.mark.slow\n",
                "tests/sql/test_short.py": mention,
                "tests/web/test_claim.py": mention + "#" * 200,
            },
        )

        names = [Path(path).stem for path in tree.nearest_tests(["sql/claim.sql"])]

        assert names == ["test_claim", "test_short", "test_long", "test_a", "test_slow"]


class TestCheckout:
    """The files of this repository."""

    @pytest.mark.parametrize(
        ("changed", "first"),
        [
            ("sql/claim/claim.sql", "tests/sql/claim/test_claim.py"),
            ("daemon/pgrouse/process/backoff.py", "tests/unit/process/test_backoff.py"),
            ("docs/reference/policies.md", "tests/docs/test_policies.py"),
            ("docs/reference/protocol.md", "tests/docs/test_protocol.py"),
        ],
    )
    def test_the_tests_of_a_file_come_first(self, changed: str, first: str) -> None:
        assert next(iter(checkout().nearest_tests([changed]))) == first

    def test_a_test_is_known_for_each_file_that_code_is_made_of(self) -> None:
        code = [
            path for path in checkout().files if path.startswith(("daemon/", "pipeline/", "sql/", "deploy/", "docker/"))
        ]

        assert [path for path in code if not checkout().dependents.get(path)] == []
