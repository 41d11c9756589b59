"""Virtual environments for readers: with what a page tells them to install, and nothing else."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.page import ROOT, Page

INSTALL = re.compile(r"pip install ([a-z][\w -]*)`")


def fresh_environment(folder: Path, page: Page) -> Path:
    """Install the checkout, and the packages that a page names, into a new virtual environment."""
    named = {name for names in INSTALL.findall(page.path.read_text()) for name in names.split()}
    _uv("venv", "--quiet", "--python", sys.executable, folder / "venv")
    _uv("pip", "install", "--quiet", "--python", folder / "venv" / "bin" / "python", ROOT, *sorted(named))
    return folder / "venv"


def _uv(*arguments: str | Path) -> None:
    program = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if program is None:
        pytest.skip("uv is not installed: run the tests by `./go test`")
    env = {**os.environ, "UV_PYTHON_DOWNLOADS": "never"}
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False, cwd="/", env=env)
    assert done.returncode == 0, done.stderr
