"""What a user of pgrouse installs: the wheel, the sdist, and an editable install of the checkout."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.uv import environment, uv

CHECKOUT = Path(__file__).parents[2]
# A registry may be slow.
pytestmark = pytest.mark.timeout(600)
LIST_SCRIPTS = """
import json
from pgrouse.database.install import schema
print(json.dumps({"root": str(schema.sql_root()), "scripts": {each.name: each.digest for each in schema.scripts()}}))
"""


def python(venv: Path, code: str, folder: Path = Path("/")) -> str:
    """Run code in a virtual environment, by default where no checkout is importable; return what it printed."""
    done = subprocess.run(
        [venv / "bin" / "python", "-c", code], capture_output=True, text=True, check=False, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    uv("build", "--quiet", "--out-dir", folder, CHECKOUT)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    """The wheel."""
    [found] = built.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with only the wheel and its dependencies."""
    return environment(tmp_path_factory.mktemp("installed"), wheel)


@pytest.fixture(scope="module")
def editable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with an editable install of the checkout."""
    return environment(tmp_path_factory.mktemp("editable"), "--editable", CHECKOUT)


def scripts_of_the_checkout() -> set[str]:
    return {file.stem for file in (CHECKOUT / "sql").glob("*/*.sql") if file.parent.name != "cron"}


def files_below_sql() -> set[str]:
    return {str(file.relative_to(CHECKOUT)) for file in (CHECKOUT / "sql").rglob("*") if file.is_file()}


def test_the_wheel_has_all_scripts_of_the_checkout(installed: Path, editable: Path) -> None:
    from_wheel = json.loads(python(installed, LIST_SCRIPTS))
    from_checkout = json.loads(python(editable, LIST_SCRIPTS))

    assert from_wheel["scripts"] == from_checkout["scripts"]
    assert set(from_wheel["scripts"]) == scripts_of_the_checkout()
    assert from_wheel["root"].startswith(str(installed))


@pytest.mark.long
def test_a_base_install_is_small(installed: Path) -> None:
    """And its bytecode with it. The largest parts that are left are libpq with its libraries, and pydantic."""
    [packages] = installed.glob("lib/python3*/site-packages")
    subprocess.run([installed / "bin" / "python", "-m", "compileall", "-q", packages], check=False)

    assert sum(file.stat().st_size for file in packages.rglob("*") if file.is_file()) < 45_000_000


def test_the_import_of_the_package_imports_nothing_else(installed: Path) -> None:
    """It takes about a millisecond: names are imported when they are first used."""
    code = (
        "import sys; import pgrouse; print([each for each in sys.modules if each.startswith('pgrouse') or each in "
        "('psycopg', 'pydantic')])"
    )

    assert python(installed, code) == "['pgrouse']"


def test_an_editable_install_reads_the_scripts_of_the_checkout(editable: Path) -> None:
    assert json.loads(python(editable, LIST_SCRIPTS))["root"] == str(CHECKOUT / "sql")


def test_every_file_below_sql_is_in_the_wheel(wheel: Path) -> None:
    in_checkout = {f"pgrouse/{path}" for path in files_below_sql()}

    assert in_checkout == {name for name in ZipFile(wheel).namelist() if name.startswith("pgrouse/sql/")}


def test_every_file_of_the_package_is_in_the_wheel(wheel: Path) -> None:
    source = CHECKOUT / "daemon"
    files = (file for file in source.rglob("*") if file.is_file() and file.parent.name != "__pycache__")
    in_checkout = {str(file.relative_to(source)) for file in files}

    assert in_checkout | {"pgrouse/py.typed"} <= set(ZipFile(wheel).namelist())


def test_the_wheel_installs_only_its_own_names_in_site_packages(wheel: Path) -> None:
    top_level = {name.split("/")[0] for name in ZipFile(wheel).namelist()}

    assert {name for name in top_level if not name.endswith(".dist-info")} == {"pgrouse", "pyspark_pgrouse"}


def test_the_installed_command_prints_its_version(installed: Path) -> None:
    output = subprocess.run(
        [installed / "bin" / "pgrouse", "--version"], capture_output=True, text=True, check=True, cwd="/"
    )

    assert "0.1.0" in output.stdout


def test_the_sdist_has_the_sql_and_the_tests(built: Path) -> None:
    [sdist] = built.glob("*.tar.gz")

    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    assert files_below_sql() <= names
    assert {"tests/conftest.py", "pyproject.toml", "README.md"} <= names


def test_no_folder_of_the_checkout_is_a_package() -> None:
    assert list(CHECKOUT.glob("*/__init__.py")) == []


@pytest.mark.parametrize("module", ["docker", "docker.models.containers"])
def test_a_folder_of_the_checkout_hides_no_package_of_the_same_name(module: str) -> None:
    found = python(Path(sys.prefix), f"import {module}; print({module}.__file__)", folder=CHECKOUT)

    assert "site-packages" in found
