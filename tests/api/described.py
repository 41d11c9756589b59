"""Each answer of the API has exactly the members that the description of its operation names."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import httpx
from jsonschema import Draft202012Validator

from pgrouse.config.config import Config
from pgrouse.web import application
from pgrouse.web.v1.description import openapi


def check(answer: httpx.Response) -> None:
    """Compare an answer of an operation with its description; a hook of a client."""
    path = answer.request.url.path
    schema = _schema(answer.request.method, path, str(answer.status_code)) if path.startswith("/v1/") else None
    if schema is not None:
        # Python reads no integer of thousands of digits.
        given = json.loads(answer.read(), parse_int=lambda digits: int(digits[:18]))
        wrong = [f"{each.json_path}: {each.message}" for each in Draft202012Validator(schema).iter_errors(given)]
        assert wrong == [], f"{answer.request.method} {path} is not as described: {wrong}"


def _schema(method: str, path: str, status: str) -> dict[str, Any] | None:
    """Return the schema of an answer; None if it has none."""
    for pattern, methods in _paths():
        if re.fullmatch(pattern, path) and method.lower() in methods:
            answer = methods[method.lower()]["responses"].get(status, {})
            if "$ref" in answer:
                answer = _closed()["responses"][answer["$ref"].rpartition("/")[2]]
            for content in answer.get("content", {}).values():
                return {**content["schema"], "components": _closed()}
            return None
    return None


@cache
def _paths() -> list[tuple[str, dict[str, Any]]]:
    """Return the operations of each path; a path without parameters comes before those that match it too."""
    paths = description()["paths"]
    return [
        (re.sub(r"\{\w+\}", "[^/]+", path), paths[path]) for path in sorted(paths, key=lambda each: each.count("{"))
    ]


@cache
def _closed() -> dict[str, Any]:
    """Return the components, in which an object has no member that is not described."""
    components: dict[str, Any] = json.loads(json.dumps(description()["components"]))
    for schema in components["schemas"].values():
        if "properties" in schema:
            schema["additionalProperties"] = False
    return components


@cache
def description() -> dict[str, Any]:
    """Return the description of the API."""
    return openapi.description(application.create_app(Config()))
