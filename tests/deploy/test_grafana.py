"""The dashboard for Grafana: Prometheus accepts each of its expressions, and panels do not overlap."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.test_prometheus import needs_promtool, promtool

DASHBOARD = Path(__file__).parents[2] / "deploy/grafana/pgrouse.json"


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return found


def expressions() -> list[str]:
    """The expressions of the panels, as Grafana would send them."""
    found = [target["expr"] for panel in panels() for target in panel.get("targets", [])]
    return [re.sub(r"\$\w+", "1m", each.replace("$topic", ".*").replace("$instance", ".*")) for each in found]


@needs_promtool
def test_prometheus_accepts_every_expression(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{nth}", "expr": each} for nth, each in enumerate(expressions())]
    file = tmp_path / "panels.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))

    assert len(rules) > 30
    assert promtool("check", "rules", file) == ""


def test_every_panel_uses_the_selected_data_source_and_a_unique_id() -> None:
    sources = [
        each["datasource"]["uid"]
        for panel in panels()
        for each in [panel, *panel.get("targets", [])]
        if "datasource" in each
    ]
    ids = [panel["id"] for panel in panels()]

    assert set(sources) == {"${datasource}"}
    assert len(set(ids)) == len(ids)


def test_panels_do_not_overlap() -> None:
    def covers(one: dict[str, int], other: dict[str, int]) -> bool:
        return all(
            one[start] < other[start] + other[size] and other[start] < one[start] + one[size]
            for start, size in (("x", "w"), ("y", "h"))
        )

    positions = [(panel["title"], panel["gridPos"]) for panel in panels()]

    assert [(a, b) for (a, one), (b, other) in combinations(positions, 2) if covers(one, other)] == []
    assert all(position["x"] + position["w"] <= 24 for _, position in positions)
