"""uv for tests: virtual environments with what they say, and nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def uv(*arguments: str | Path) -> None:
    """Run uv outside of the checkout; it fetches no Python."""
    program = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if program is None:
        pytest.skip("uv is not installed: run the tests by `./go test`")
    env = {**os.environ, "UV_PYTHON_DOWNLOADS": "never"}
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False, cwd="/", env=env)
    assert done.returncode == 0, done.stderr


def environment(folder: Path, *what: str | Path) -> Path:
    """Install what is named into a new virtual environment, and return where it is."""
    uv("venv", "--quiet", "--python", sys.executable, folder / "venv")
    uv("pip", "install", "--quiet", "--python", folder / "venv" / "bin" / "python", *what)
    return folder / "venv"
