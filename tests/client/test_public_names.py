"""`import pgrouse` on an install without extras.

Every name is there, and what needs a package says so when it is used.
"""

from __future__ import annotations

import subprocess
import sys

import pgrouse

BASE_INSTALL = """
import sys

class NotInstalled:
    EXTRAS = {"cryptography", "fastapi", "jsonschema_rs", "opentelemetry", "prometheus_client", "sqlalchemy", "django",
          "asyncpg"}

    def find_spec(self, name, *_):
        if name in self.EXTRAS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NotInstalled())
"""


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", BASE_INSTALL + code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_everything_can_be_imported_at_once() -> None:
    listed = run("from pgrouse import *; print(*sorted(name for name in dir() if not name.startswith('_')))").split()

    assert set(pgrouse.__all__) < set(listed)
    assert {"publish", "Context", "AsyncContext", "Client", "Cipher"} <= set(pgrouse.__all__)


def test_hasattr_answers_for_every_name_and_for_others() -> None:
    shown = run("import pgrouse; print(*[hasattr(pgrouse, name) for name in [*pgrouse.__all__, 'publihs']])").split()

    assert shown == ["True"] * len(pgrouse.__all__) + ["False"]


def test_dir_lists_the_names_before_they_are_used() -> None:
    listed = run("import pgrouse; print(*dir(pgrouse))").split()

    assert {*pgrouse.__all__, "__version__"} <= set(listed)


def test_the_version_is_that_of_the_package() -> None:
    assert (
        run("import pgrouse; from importlib.metadata import version; print(pgrouse.__version__ == version('pgrouse'))")
        == "True\n"
    )


def test_a_cipher_without_its_package_names_the_package() -> None:
    code = "import pgrouse; pgrouse.Cipher({'k': bytes(32)}, 'k')"

    done = subprocess.run([sys.executable, "-c", BASE_INSTALL + code], capture_output=True, text=True, check=False)

    assert done.stderr.rstrip().endswith("ConfigError: encryption needs cryptography: pip install 'pgrouse[crypto]'")


def test_names_are_imported_when_they_are_used() -> None:
    assert run("import pgrouse; print('pydantic' in sys.modules, 'psycopg' in sys.modules)") == "False False\n"
