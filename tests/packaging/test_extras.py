"""The packages of an extra are enough for the modules that need it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pgrouse.cli.background import pipeline

# Imports modules in a process in which a package that the extra does not bring cannot be found.
IMPORT = """
import importlib, sys
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

def brought(name, extras, seen):
    for line in requires(name) or []:
        wanted = Requirement(line)
        if wanted.marker and not any(wanted.marker.evaluate({"extra": each}) for each in ("", *extras)):
            continue
        found = canonicalize_name(wanted.name)
        if (found, *sorted(wanted.extras)) in seen:
            continue
        seen.add((found, *sorted(wanted.extras)))
        try:
            brought(found, wanted.extras, seen)
        except PackageNotFoundError:
            pass
    return seen

extra, *modules = sys.argv[1:]
names = {each[0] for each in brought("pgrouse", {extra}, set())} | {"pgrouse"}
others = {
    module for module, by in packages_distributions().items()
    if not names & {canonicalize_name(each) for each in by}
}

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in others:
            raise ModuleNotFoundError(f"No module named {name!r}: the extra {extra} does not bring it", name=name)

sys.meta_path.insert(0, Absent())
for module in modules:
    importlib.import_module(module)
    print(module)
"""


JOBS = {name: target.partition(":")[0] for name, (target, _) in pipeline.JOBS.items()}


@pytest.mark.long
@pytest.mark.parametrize(
    ("extra", "modules"),
    [("spark", [module for name, module in JOBS.items() if name != "report"]), ("report", [JOBS["report"]])],
    ids=["spark", "report"],
)
def test_each_job_can_be_imported_with_its_extra_alone(extra: str, modules: list[str]) -> None:
    command = [sys.executable, "-c", IMPORT, extra, *modules]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == modules
