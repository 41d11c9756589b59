"""The workflow of GitHub: it runs .ci/run with few rights, in time, and with nothing that may change under it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

CHECKOUT = Path(__file__).parents[2]
TEXT = (CHECKOUT / ".github/workflows/check.yml").read_text()
WORKFLOW: dict[str, Any] = yaml.safe_load(TEXT)
JOB = WORKFLOW["jobs"]["check"]


def test_it_may_only_read_the_repository_and_leaves_no_credentials() -> None:
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert "permissions" not in JOB
    assert "pull_request_target" not in TEXT
    assert JOB["steps"][0]["with"]["persist-credentials"] is False


def test_every_action_is_pinned_to_a_commit() -> None:
    used = re.findall(r"uses: (\S+) # v\d+\.\d+\.\d+\n", TEXT)

    assert [step["uses"] for step in JOB["steps"] if "uses" in step] == used
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", each) for each in used)


def test_every_job_ends_in_time() -> None:
    assert [name for name, job in WORKFLOW["jobs"].items() if "timeout-minutes" not in job] == []


def test_the_step_runs_the_script_of_the_checkout_in_a_debian_with_the_variables_of_the_job(tmp_path: Path) -> None:
    for name, text in {
        "docker": 'for each; do printf "%s\\n" "$each" >>docker-called; done; '
        'while [ "$1" != bash ]; do shift; done; "$@"',
        "apt-get": 'echo "$@" >>called',
        "git": 'echo "git $*" >>called',
        ".ci/run": 'echo ".ci/run $*" >>called',
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SCOPE": "all"}

    # As GitHub runs a step.
    subprocess.run(["bash", "-e", "-c", JOB["steps"][1]["run"]], cwd=tmp_path, env=environ, check=True)

    assert (tmp_path / "called").read_text().splitlines()[-2:] == [
        f"git config --global --add safe.directory {tmp_path}",
        ".ci/run all",
    ]
    assert JOB["env"].keys() == {"SCOPE"}
    assert {"SCOPE", f"{tmp_path}:{tmp_path}"} <= set((tmp_path / "docker-called").read_text().splitlines())
