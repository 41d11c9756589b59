"""docker/compose.yaml, read and not run: published ports, rights of services, and that everything it names exists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from pgrouse.cli.root import COMMANDS
from pgrouse.config.config import Config, WorkerSettings
from pgrouse.worker.process_exit import EXIT_S
from pgrouse.worker.service import CANCEL_S, LAST_SETTLE_S

DOCKER = Path(__file__).parents[2] / "docker"
TEXT = (DOCKER / "compose.yaml").read_text()
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(TEXT)["services"]
OURS = ("daemon", "web")
# Mounted files that are not in the checkout.
VOLUMES = yaml.safe_load(TEXT)["volumes"]


def seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+)(s|m)", text)
    assert found
    return int(found[1]) * {"s": 1, "m": 60}[found[2]]


@pytest.mark.parametrize("name", SERVICES)
def test_every_port_is_published_on_this_machine_only(name: str) -> None:
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[name].get("ports", []))


@pytest.mark.parametrize("name", SERVICES)
def test_services_have_only_the_rights_they_name(name: str) -> None:
    assert SERVICES[name]["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in SERVICES[name]["security_opt"]


@pytest.mark.parametrize("name", OURS)
def test_services_of_pgrouse_write_nothing(name: str) -> None:
    assert SERVICES[name]["read_only"] is True
    assert all(str(volume).endswith(":ro") for volume in SERVICES[name].get("volumes", []))


def test_monitoring_requires_a_profile() -> None:
    assert {name for name, service in SERVICES.items() if "profiles" not in service} == {"db", "daemon", "web"}


@pytest.mark.parametrize("name", SERVICES)
def test_every_mounted_folder_and_file_exists(name: str) -> None:
    for volume in SERVICES[name].get("volumes", []):
        source = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", volume).split(":")[0]
        assert source in VOLUMES or (DOCKER / source).exists(), source


@pytest.mark.parametrize("name", OURS)
def test_every_setting_exists(name: str) -> None:
    for variable in SERVICES[name]["environment"]:
        if found := re.fullmatch(r"PGROUSE_(\w+?)__(\w+)", variable):
            section = Config.model_fields[found[1].lower()].annotation
            assert section is not None
            assert found[2].lower() in section.model_fields, variable


def test_every_variable_is_described_in_the_head() -> None:
    comment = "\n".join(line for line in TEXT.splitlines() if line.startswith("#"))
    read = set(re.findall(r"\$\{(\w+)", TEXT))

    assert {name for name in read if name not in comment} == set()


def test_every_command_exists() -> None:
    (command,) = SERVICES["web"]["command"]

    assert command in COMMANDS
    assert "web token add me --role operator" in TEXT
    assert "token" in COMMANDS


def test_a_daemon_has_time_to_drain_before_it_is_killed() -> None:
    longest = WorkerSettings().shutdown_timeout.total_seconds() + CANCEL_S + LAST_SETTLE_S + EXIT_S

    assert seconds(SERVICES["daemon"]["stop_grace_period"]) > longest


def test_prometheus_scrapes_the_served_ports_with_the_rules_of_the_checkout() -> None:
    scrapes = yaml.safe_load((DOCKER / "monitoring" / "prometheus.yaml").read_text())
    jobs = {job["job_name"]: job for job in scrapes["scrape_configs"]}
    (daemons,) = jobs["pgrouse"]["dns_sd_configs"]
    (web,) = jobs["pgrouse-web"]["static_configs"]
    (rules,) = scrapes["rule_files"]

    assert SERVICES["daemon"]["environment"]["PGROUSE_METRICS__LISTEN"].endswith(f":{daemons['port']}")
    assert daemons["names"] == ["daemon"]
    assert SERVICES["web"]["environment"]["PGROUSE_WEB__LISTEN"].endswith(web["targets"][0].removeprefix("web"))
    assert (DOCKER.parent / "deploy" / "prometheus" / Path(rules).name).exists()


def test_the_image_contains_what_the_services_need() -> None:
    dockerfile = (DOCKER / "daemon" / "Dockerfile").read_text()

    assert all(f"--extra={extra}" in dockerfile for extra in ("web", "metrics", "alerts", "otel"))
    assert dockerfile.count("uv sync --locked --no-default-groups $EXTRAS") == 2
