"""The alert rules: Prometheus accepts them, each fires when it should, and each names its runbook."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from pgrouse.alerts import runbooks
from pgrouse.config.config import WebSettings
from pgrouse.metrics import catalogue

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy/prometheus/alerts.yaml"
UNIT_TESTS = sorted((ROOT / "tests/deploy").glob("alerts*_test.yaml"))
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="`apt-get install prometheus` brings promtool")


def promtool(*arguments: object) -> str:
    """Run it; return its output if it fails."""
    ran = subprocess.run([str(PROMTOOL), *map(str, arguments)], text=True, capture_output=True, check=False)
    return "" if ran.returncode == 0 else ran.stdout + ran.stderr


def rules() -> list[dict[str, Any]]:
    found = yaml.safe_load(RULES.read_text())
    return [rule for group in found["groups"] for rule in group["rules"]]


@needs_promtool
def test_prometheus_accepts_the_rules_and_the_configuration() -> None:
    assert promtool("check", "rules", RULES) == ""
    assert promtool("check", "config", "--syntax-only", ROOT / "deploy/prometheus/scrape.yaml") == ""


@pytest.mark.long
@needs_promtool
def test_the_unit_tests_of_the_rules_pass() -> None:
    assert promtool("test", "rules", *UNIT_TESTS) == ""


def test_each_rule_is_tested_firing_and_silent() -> None:
    groups = [test for file in UNIT_TESTS for test in yaml.safe_load(file.read_text())["tests"]]
    tests = [each for group in groups for each in group["alert_rule_test"]]
    fires = {each["alertname"] for each in tests if each["exp_alerts"]}
    silent = {each["alertname"] for each in tests if not each["exp_alerts"]}

    assert fires == silent == {rule["alert"] for rule in rules()}


def test_the_rules_use_only_exported_metrics() -> None:
    exported = {metric.name for metric in (*catalogue.DAEMON, *catalogue.QUEUE)}
    used = {name for rule in rules() for name in re.findall(r"\bpgrouse_\w+", rule["expr"])}

    assert used - exported == set()


def test_the_documented_command_puts_the_address_of_the_dashboard_into_the_links(tmp_path: Path) -> None:
    copy = tmp_path / "alerts.yaml"
    copy.write_text(RULES.read_text())
    (command,) = re.findall(r"^# +(sed -i .* alerts\.yaml)$", RULES.read_text(), re.MULTILINE)

    subprocess.run(shlex.split(command), cwd=tmp_path, check=True)

    found = [
        rule["annotations"]["runbook_url"]
        for group in yaml.safe_load(copy.read_text())["groups"]
        for rule in group["rules"]
    ]
    before = [urlsplit(rule["annotations"]["runbook_url"]) for rule in rules()]
    assert [urlsplit(each) for each in found] == [
        each._replace(scheme="https", netloc="pgrouse.example.com") for each in before
    ]


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_each_rule_has_a_description_and_a_runbook(rule: dict[str, Any]) -> None:
    address = f"http://{WebSettings().listen}"

    assert rule["annotations"]["runbook_url"] == f"{address}{runbooks.path(rule['alert'])}"
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert rule["annotations"]["summary"]
    assert rule["annotations"]["description"].endswith((".", "?"))
