"""The manifests of deploy/kubernetes, as the tests read them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator

ROOT = Path(__file__).parents[2]
KUBERNETES = ROOT / "deploy" / "kubernetes"
SCHEMAS = Path(__file__).parent / "schemas"


@dataclass(frozen=True)
class Manifest:
    """One object of a file.

    Attributes:
        path: the file, below deploy/kubernetes.
        body: its content.
    """

    path: str
    body: dict[str, Any]

    @property
    def kind(self) -> str:
        """What it is, with the version of the API: `apps/v1 Deployment`."""
        return f"{self.body['apiVersion']} {self.body['kind']}"

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.body["metadata"]["name"])

    @property
    def template(self) -> dict[str, Any] | None:
        """The template of the pods that it creates, None if it creates none."""
        spec = self.body.get("spec", {})
        found: dict[str, Any] | None = spec.get("jobTemplate", {}).get("spec", spec).get("template")
        return found

    @property
    def pod(self) -> dict[str, Any] | None:
        """The pod that it creates, None if it creates none."""
        return self.template and self.template["spec"]

    def __str__(self) -> str:
        return f"{self.path}: {self.body['kind']} {self.name}"


def files() -> list[Path]:
    """Return all YAML files."""
    return sorted(KUBERNETES.rglob("*.yaml"))


def manifests() -> list[Manifest]:
    """Return every complete object; patches of overlays are not included."""
    return [each for path in files() if path.parent.parent.name != "overlays" for each in _in(path)]


def kustomizations() -> dict[Path, dict[str, Any]]:
    """Return the resources of each folder."""
    return {path.parent: yaml.safe_load(path.read_text()) for path in KUBERNETES.rglob("kustomization.yaml")}


def problems(manifest: Manifest) -> list[str]:
    """Return the violations of its schema."""
    schemas = _schemas()
    if manifest.kind not in schemas:
        return [f"{manifest}: there is no schema of {manifest.kind}"]
    found = schemas[manifest.kind].iter_errors(manifest.body)
    return [f"{manifest}: {'.'.join(map(str, each.absolute_path))}: {each.message}" for each in found]


def _in(path: Path) -> Iterator[Manifest]:
    name = str(path.relative_to(KUBERNETES))
    for body in yaml.safe_load_all(path.read_text()):
        if path.name != "kustomization.yaml":
            yield Manifest(name, body)


@cache
def _schemas() -> dict[str, Draft202012Validator]:
    found = {}
    for path in SCHEMAS.glob("*.json"):
        schema = json.loads(path.read_text())
        for kind, top in schema["kinds"].items():
            found[kind] = Draft202012Validator({**top, "$defs": schema.get("$defs", {})})
    return found
