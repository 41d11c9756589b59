"""Virtual environments for readers: with what a page tells them to install, and nothing else."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from tests.docs.page import ROOT, Page
from tests.uv import environment

INSTALL = re.compile(r"pip install ([a-z'][\w '\[\]-]*)`")


def fresh_environment(folder: Path, page: Page) -> Path:
    """Install the checkout, and the packages that a page names, into a new virtual environment."""
    named = {name for names in INSTALL.findall(page.path.read_text()) for name in shlex.split(names)}
    return environment(folder, ROOT, *sorted(named))
