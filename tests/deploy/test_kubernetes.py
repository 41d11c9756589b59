"""The files of deploy/kubernetes.

Each object matches the schema of its kind, the objects match each other, and the pods the daemon.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from pgrouse.cli.root import COMMANDS
from pgrouse.config.config import Config, WorkerSettings, load
from pgrouse.errors import ExitCode
from pgrouse.worker.process_exit import EXIT_S
from pgrouse.worker.service import CANCEL_S, LAST_SETTLE_S
from tests.deploy.manifest import KUBERNETES, Manifest, files, kustomizations, manifests, problems
from tests.deploy.pipeline import parsed
from tests.server.postgres import Database

ALL = manifests()
PODS = [each for each in ALL if each.pod]
IMAGE_USER = 10001
PUBLISH = """
    INSERT INTO messages.message (topic, payload, available_at)
    VALUES (%(topic)s, '{}', clock_timestamp() + %(ready)s::interval)"""


def one(kind: str, name: str) -> Manifest:
    (found,) = [each for each in ALL if each.body["kind"] == kind and each.name == name]
    return found


def container(manifest: Manifest) -> dict[str, Any]:
    assert manifest.pod
    (found,) = manifest.pod["containers"]
    return found


@pytest.mark.parametrize("manifest", ALL, ids=str)
def test_every_object_fits_the_schema_of_its_kind(manifest: Manifest) -> None:
    assert problems(manifest) == []


def test_an_unknown_field_a_wrong_type_and_a_missing_field_are_found() -> None:
    daemon = one("Deployment", "pgrouse-daemon").body
    spec = {**daemon["spec"], "replicas": "two", "minReady": 5}
    del spec["selector"]

    found = " ".join(problems(Manifest("broken.yaml", {**daemon, "spec": spec})))

    assert "minReady" in found
    assert "'two' is not of type" in found
    assert "'selector' is a required property" in found


def test_every_file_is_part_of_a_kustomization() -> None:
    named = {folder / name for folder, body in kustomizations().items() for name in _files_of(body)}

    forgotten = {path for path in files() if path.name not in ("kustomization.yaml", "secrets.example.yaml")} - named

    assert forgotten == set()


def test_every_file_and_folder_in_a_kustomization_exists() -> None:
    missing = [
        f"{folder}: {name}"
        for folder, body in kustomizations().items()
        for name in [*_files_of(body), *body.get("components", [])]
        if not (folder / name).exists()
    ]

    assert missing == []


def test_every_patch_has_an_existing_target() -> None:
    there = {(each.body["kind"], each.name) for each in ALL}
    patched = set()
    for folder, body in kustomizations().items():
        for patch in body.get("patches", []):
            target = patch.get("target") or _target(folder / patch["path"])
            patched.add((target["kind"], target["name"]))

    assert patched
    assert patched <= there


def test_every_patched_variable_is_a_setting() -> None:
    text = "".join(path.read_text() for path in files())
    named = set(re.findall(r"PGROUSE_([A-Z]+)__([A-Z_]+)", text))

    assert named
    for section, key in named:
        assert key.lower() in Config.model_fields[section.lower()].annotation.model_fields, f"{section}.{key}"


@pytest.mark.parametrize("manifest", PODS, ids=str)
def test_no_pod_has_privileges(manifest: Manifest) -> None:
    pod, main = manifest.pod, container(manifest)
    assert pod

    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == IMAGE_USER
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert main["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"cpu", "memory"} <= main["resources"]["requests"].keys()
    assert "memory" in main["resources"]["limits"]


def test_the_user_is_that_of_the_image() -> None:
    dockerfile = (KUBERNETES.parents[1] / "docker" / "daemon" / "Dockerfile").read_text()

    assert f"USER {IMAGE_USER}:{IMAGE_USER}" in dockerfile


@pytest.mark.parametrize("manifest", PODS, ids=str)
def test_no_pod_has_a_password_in_its_environment(manifest: Manifest) -> None:
    names = {each["name"] for each in container(manifest)["env"]}

    assert not names & {"PGPASSWORD", "PGROUSE_DSN", "DATABASE_URL"}
    assert "PGSERVICEFILE" in names


@pytest.mark.parametrize("manifest", PODS, ids=str)
def test_every_mounted_volume_exists_with_its_service(manifest: Manifest) -> None:
    assert manifest.pod
    generated = {each["name"] for body in kustomizations().values() for each in body.get("configMapGenerator", [])}
    environment = {each["name"]: each["value"] for each in container(manifest)["env"]}
    volumes = {each["name"]: each for each in manifest.pod["volumes"]}

    assert {each["name"] for each in container(manifest)["volumeMounts"]} == volumes.keys()
    secret = one("Secret", volumes["secret"]["secret"]["secretName"])
    assert f"[{environment['PGSERVICE']}]" in secret.body["stringData"]["pg_service.conf"]
    if "config" in volumes:
        assert volumes["config"]["configMap"]["name"] in generated


@pytest.mark.parametrize("manifest", PODS, ids=str)
def test_every_pod_runs_an_existing_command(manifest: Manifest) -> None:
    assert container(manifest)["args"][0] in COMMANDS


@pytest.mark.parametrize("name", ["export", "report"])
def test_the_jobs_of_the_pipeline_have_options_that_exist_and_a_failure_that_is_not_repeated(name: str) -> None:
    job = one("CronJob", f"pgrouse-{name}")
    group, command, *arguments = container(job)["args"]
    (rule,) = job.body["spec"]["jobTemplate"]["spec"]["podFailurePolicy"]["rules"]

    assert (group, command) == ("pipeline", name)
    assert parsed(command, arguments)
    assert rule["onExitCodes"]["values"] == [ExitCode.FOUND_A_PROBLEM, ExitCode.USAGE, ExitCode.BAD_CONFIG]
    assert job.body["spec"]["concurrencyPolicy"] == "Forbid"


def test_a_daemon_has_time_to_drain_before_it_is_killed() -> None:
    drains = [load(path).worker.shutdown_timeout.total_seconds() for path in KUBERNETES.rglob("pgrouse.toml")]
    longest = max(*drains, WorkerSettings().shutdown_timeout.total_seconds()) + CANCEL_S + LAST_SETTLE_S + EXIT_S

    assert one("Deployment", "pgrouse-daemon").pod["terminationGracePeriodSeconds"] > longest


def test_the_probes_use_served_ports() -> None:
    for name, listen in (("pgrouse-daemon", "PGROUSE_METRICS__LISTEN"), ("pgrouse-web", "PGROUSE_WEB__LISTEN")):
        main = container(one("Deployment", name))
        served = next(each["value"] for each in main["env"] if each["name"] == listen).rpartition(":")[2]
        (port,) = main["ports"]

        assert str(port["containerPort"]) == served
        assert main["livenessProbe"]["httpGet"] == {"path": "/livez", "port": port["name"]}
        assert main["startupProbe"]["httpGet"] == {"path": "/livez", "port": port["name"]}
        assert main["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": port["name"]}


def test_every_selector_matches_pods() -> None:
    labels = [each.template["metadata"]["labels"] for each in PODS if each.template]
    selectors = [
        *(each.body["spec"]["selector"] for each in ALL if each.kind == "v1 Service"),
        *(each.body["spec"]["selector"]["matchLabels"] for each in ALL if each.body["kind"] == "PodDisruptionBudget"),
        *(each.body["spec"]["podSelector"]["matchLabels"] for each in ALL if each.body["kind"] == "NetworkPolicy"),
    ]

    assert len(selectors) == 6
    assert all(any(each.items() <= pod.items() for pod in labels) for each in selectors)


def test_the_monitors_match_services_and_their_ports() -> None:
    services = [each.body for each in ALL if each.kind == "v1 Service"]
    for monitor in (each.body["spec"] for each in ALL if each.body["kind"] == "ServiceMonitor"):
        wanted = monitor["selector"]["matchLabels"].items()
        (service,) = [each for each in services if wanted <= each["metadata"]["labels"].items()]

        assert {each["port"] for each in monitor["endpoints"]} <= {each["name"] for each in service["spec"]["ports"]}
        for credentials in (
            each["authorization"]["credentials"] for each in monitor["endpoints"] if "authorization" in each
        ):
            assert credentials["key"] in one("Secret", credentials["name"]).body["stringData"]


def test_the_scaler_has_an_existing_target_and_a_described_secret() -> None:
    scaled = one("ScaledObject", "pgrouse-daemon").body["spec"]
    (trigger,) = scaled["triggers"]
    (secret,) = one("TriggerAuthentication", trigger["authenticationRef"]["name"]).body["spec"]["secretTargetRef"]

    assert one("Deployment", scaled["scaleTargetRef"]["name"])
    assert secret["key"] in one("Secret", secret["name"]).body["stringData"]


@pytest.fixture
def scaler(database: Database) -> psycopg.Connection[Any]:
    """A connection with the rights of the scaler's user: only those of messages_analyst."""
    conn = database.connect()
    conn.execute("SET ROLE messages_analyst")
    return conn


def scale(conn: psycopg.Connection[Any]) -> Any:
    (trigger,) = one("ScaledObject", "pgrouse-daemon").body["spec"]["triggers"]
    return conn.execute(trigger["metadata"]["query"]).fetchone()


def test_the_scalers_query_returns_the_age_of_the_oldest_waiting_message(
    db: psycopg.Connection[Any], scaler: psycopg.Connection[Any]
) -> None:
    assert scale(scaler) == (0,)

    db.execute(PUBLISH, {"topic": "a", "ready": "-90.5 s"})
    db.execute(PUBLISH, {"topic": "b", "ready": "0 s"})
    db.execute(PUBLISH, {"topic": "later", "ready": "1 h"})

    (age,) = scale(scaler)
    assert isinstance(age, int)
    assert 90 < age < 120


def test_paused_topics_request_no_daemons(db: psycopg.Connection[Any], scaler: psycopg.Connection[Any]) -> None:
    db.execute(PUBLISH, {"topic": "a", "ready": "-90 s"})
    db.execute("SELECT messages.pause('a')")
    assert scale(scaler) == (0,)

    db.execute("SELECT messages.resume('a')")
    assert scale(scaler)[0] >= 90

    db.execute("SELECT messages.pause('*')")
    assert scale(scaler) == (0,)


def test_topics_without_a_handler_or_with_an_open_breaker_request_no_daemons(
    db: psycopg.Connection[Any], scaler: psycopg.Connection[Any]
) -> None:
    db.execute("SELECT messages.register_worker('w', 'h', 1, '1', ARRAY['mail'], 1)")
    db.execute("INSERT INTO messages.topic (topic, breaker) VALUES ('mail', '{\"pause\": \"1h\"}')")
    for topic in ("orphan", "mail"):
        db.execute(PUBLISH, {"topic": topic, "ready": "-90 s"})
    assert scale(scaler)[0] >= 90

    db.execute(
        "INSERT INTO messages.breaker (topic, position, probe_at, reason)"
        " VALUES ('mail', 'open', clock_timestamp() + interval '1 hour', '9 of 10 failed')"
    )
    assert scale(scaler) == (0,)

    db.execute("SELECT messages.unregister_worker('w')")
    assert scale(scaler)[0] >= 90, "while no worker is alive, one has to start"


def test_the_scalers_user_sees_no_payload(scaler: psycopg.Connection[Any]) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        scaler.execute("SELECT payload FROM messages.message")


def _files_of(kustomization: dict[str, Any]) -> list[str]:
    generated = [name for each in kustomization.get("configMapGenerator", []) for name in each["files"]]
    patches = [each["path"] for each in kustomization.get("patches", []) if "path" in each]
    return [*kustomization.get("resources", []), *generated, *patches]


def _target(patch: Path) -> dict[str, str]:
    body = yaml.safe_load(patch.read_text())
    return {"kind": body["kind"], "name": body["metadata"]["name"]}
