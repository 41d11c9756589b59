"""Code is chosen by the configuration, by the project and by the package itself, never by what is in the database.

Names in topics, headers, payloads, errors and rows must not become modules. Each place that turns a name into code is
listed here with the origin of its name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
FOLDERS = ("daemon", "pipeline", "examples")
IMPORTS_BY_NAME = {
    *("import_module", "__import__", "import_string", "find_spec", "resolve_name", "run_module", "run_path"),
    *("autodiscover_modules", "exec_module", "spec_from_file_location"),
}
RUNS_TEXT = {"eval", "exec"}
DECODES_OBJECTS = {
    f"{module}.{name}" for module in ("pickle", "marshal", "shelve", "yaml") for name in ("load", "loads", "open")
}

OURS = "a name in the same file"
CONFIGURED = "the configuration, or code of the project"
PLACES = {
    ("daemon/pgrouse/__init__.py", "import_module"): OURS,
    ("daemon/pgrouse/web/__init__.py", "import_module"): OURS,
    ("daemon/pgrouse/alerts/sinks/__init__.py", "import_module"): "the files next to it",
    ("daemon/pgrouse/publishing/drivers/__init__.py", "import_module"): OURS,
    (
        "daemon/pgrouse/terminal/lazy_group.py",
        "importlib.import_module",
    ): "the commands, in the code that registers them",
    ("daemon/pgrouse/worker/child/django_connections.py", "importlib.import_module"): OURS,
    ("daemon/pgrouse/config/described_model.py", "import_module"): "the module of a model",
    ("daemon/pgrouse/terminal/extras.py", "find_spec"): OURS,
    ("daemon/pgrouse/cli/background/pipeline.py", "find_spec"): OURS,
    ("daemon/pgrouse/cli/demo/hints.py", "find_spec"): OURS,
    ("daemon/pgrouse/devdb/container.py", "find_spec"): OURS,
    ("daemon/pgrouse/devdb/installation.py", "find_spec"): OURS,
    ("daemon/pgrouse/process/file_watch.py", "find_spec"): OURS,
    ("pipeline/pyspark_pgrouse/java.py", "find_spec"): OURS,
    ("pipeline/pyspark_pgrouse/jobs/run_metrics.py", "find_spec"): OURS,
    ("examples/django_shop/shop/settings.py", "importlib.util.find_spec"): OURS,
    ("daemon/pgrouse/handlers/declaration/discovery.py", "importlib.import_module"): CONFIGURED,
    ("daemon/pgrouse/handlers/declaration/loader.py", "import_module"): CONFIGURED,
    ("daemon/pgrouse/handlers/declaration/loader.py", "importlib.util.find_spec"): CONFIGURED,
    ("daemon/pgrouse/handlers/declaration/discovery.py", "import_module"): CONFIGURED,
    ("daemon/pgrouse/config/config.py", "PathFinder.find_spec"): CONFIGURED,
    ("daemon/pgrouse/contrib/django/dashboard.py", "import_module"): CONFIGURED,
    ("daemon/pgrouse/contrib/django/queued_task.py", "import_module"): CONFIGURED,
    ("daemon/pgrouse/contrib/django/queued_task.py", "autodiscover_modules"): CONFIGURED,
    ("pipeline/pyspark_pgrouse/claim/user_function.py", "importlib.import_module"): CONFIGURED,
    # The name is in the database: find_spec gets only its first part, and the finder of paths imports nothing.
    ("daemon/pgrouse/client/apply/schedule_change.py", "find_spec"): "a package of handlers.modules",
    ("daemon/pgrouse/client/apply/schedule_change.py", "PathFinder.find_spec"): "the database, and nothing is imported",
    ("daemon/pgrouse/worker/child/child_server.py", "pickle.loads"): "the daemon that started the process",
}


def calls() -> Iterator[tuple[str, str]]:
    for folder in FOLDERS:
        for path in (CHECKOUT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call):
                    yield str(path.relative_to(CHECKOUT)), ast.unparse(node.func)


def chooses_code(function: str) -> bool:
    last = function.rpartition(".")[2]
    return last in IMPORTS_BY_NAME or function in RUNS_TEXT or function in DECODES_OBJECTS


def test_code_is_chosen_by_name_only_where_the_name_does_not_come_from_data() -> None:
    found = {(path, function) for path, function in calls() if chooses_code(function)}

    assert found - PLACES.keys() == set(), (
        "where does the name come from? If not from data, list it here with its origin"
    )
    assert PLACES.keys() - found == set(), "these are gone: remove them from the list"
