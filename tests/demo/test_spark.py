"""`./go demo --spark`.

The archive of the demo is exported to a lake and reported on, and its dead messages are redriven.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.demo.process import Demo

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(400)]


def test_lake_report_and_redrive_agree_with_the_archive(demo: Callable[..., Demo]) -> None:
    played = demo("--spark", "--json")

    code = played.end(within_s=350)

    report = json.loads(played.out)
    checks = {check["name"]: check["ok"] for check in report["checks"]}
    assert code == 0, played.err
    assert (checks["lake"], checks["report"], checks["redriven"]) == (True, True, True)
    # Nothing is left of the database: the demo has removed its schema.
    page = next(Path(line.strip()) for line in played.err.splitlines() if line.strip().endswith("report.html"))
    assert page.read_text().startswith("<!doctype html>")
