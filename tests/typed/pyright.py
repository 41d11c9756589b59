"""Has pyright read the code of users in this folder: it must find what mypy finds there, and nothing else.

Lines with a mistake have mypy's `# type: ignore[...]`. mypy itself reports an ignore that is not needed; here each of
these lines must have an error, and no other line may have one.
"""

# What is read from JSON has no type.
# pyright: reportAny=false
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
PROGRAM = Path(sys.executable).with_name("basedpyright")
Line = tuple[Path, int]


def expected() -> set[Line]:
    """The lines with a mistake."""
    files = [each for each in FOLDER.glob("*.py") if each != Path(__file__)]
    return {
        (file, number)
        for file in files
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if "# type: ignore[" in line
    }


def reported() -> dict[Line, str]:
    """The first error of each line."""
    options = ["--outputjson", "--pythonpath", sys.executable, "--project", str(FOLDER.parents[1])]
    done = subprocess.run([str(PROGRAM), *options], capture_output=True, text=True, check=False)
    found: dict[Line, str] = {}
    diagnostics: list[dict[str, Any]] = json.loads(done.stdout)["generalDiagnostics"]
    for each in diagnostics:
        place = Path(each["file"]), each["range"]["start"]["line"] + 1
        found.setdefault(place, each["message"].splitlines()[0])
    return found


def main() -> int:
    """Compare both; return how the process ends."""
    wanted, found = expected(), reported()
    wrong = [(*place, f"pyright: {text}") for place, text in found.items() if place not in wanted]
    wrong += [(*place, "pyright finds no mistake here, and mypy does") for place in wanted - set(found)]
    for file, line, text in sorted(wrong):
        print(f"{file}:{line}: {text}")
    print(f"pyright: {len(wanted)} mistakes in the code of users, {len(wrong)} differences from mypy")
    return 1 if wrong or not wanted else 0


if __name__ == "__main__":
    sys.exit(main())
