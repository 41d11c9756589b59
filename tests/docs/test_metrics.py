"""docs/reference/metrics.md lists every metric, with its type and labels, and no other."""

from __future__ import annotations

import re

import pytest

from pgrouse.metrics import catalogue
from pgrouse.metrics.catalogue import MetricDefinition
from pgrouse.worker.health import HealthProbe
from tests.docs.page import ROOT, Page

PAGE = Page("docs/reference/metrics.md")


@pytest.mark.parametrize(("section", "metrics"), [("Of a daemon", catalogue.DAEMON), ("Of the queue", catalogue.QUEUE)])
def test_every_metric_is_listed_with_its_type_and_labels_and_no_other(
    section: str, metrics: tuple[MetricDefinition, ...]
) -> None:
    listed = [
        (name.strip("`"), kind, tuple(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels, _ in PAGE.section(section).rows()
    ]

    assert listed == [(each.name, each.kind.value, each.labels) for each in metrics]


def test_every_named_metric_is_exported() -> None:
    source = (ROOT / "daemon/pgrouse/metrics/catalogue.py").read_text()
    constants = set(re.findall(r"^([A-Z_]+) = _(?:counter|gauge|histogram)", source, re.MULTILINE))

    assert {getattr(catalogue, name) for name in constants} == {*catalogue.DAEMON, *catalogue.QUEUE}


def test_the_checks_of_the_probes_are_listed() -> None:
    listed = {row[0].strip("`") for row in PAGE.section("/livez and /readyz").rows()}
    source = (ROOT / "daemon/pgrouse/worker/health.py").read_text()

    assert listed == set(re.findall(r'Check\(\s*"(\w+)"', source))
    assert {check.name for check in HealthProbe(30, 10).ready()} <= listed
