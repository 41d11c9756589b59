"""`/v1/docs`: the OpenAPI description as a page to read, with a form for each operation that sends it."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import Mapping
from typing import Any

import psycopg
from fastapi import APIRouter, Request
from starlette.responses import Response

from pgrouse.web.access.security import RequireRole
from pgrouse.web.http.problem import Problem
from pgrouse.web.page.page import render
from pgrouse.web.v1.description.openapi import description
from pgrouse.web.v1.description.problem_responses import PROBLEMS

router = APIRouter(prefix="/v1")

JSON = "application/json"
# A part of the description, and what the page shows of one.
Part = Mapping[str, Any]
Shown = dict[str, Any]


@router.get("/docs")
async def show_reference(request: Request) -> Response:
    """Show the page; with the navigation of the dashboard to callers that it knows."""
    request.state.caller = await _known_caller(request)
    api = await asyncio.to_thread(description, request.app)
    roles = _roles(request)
    schemas = {name: _body(name, schema) for name, schema in api["components"]["schemas"].items()}
    operations = [
        _operation(schemas, found) | {"path": path, "method": method.upper(), "role": roles[found["operationId"]]}
        for path, methods in api["paths"].items()
        for method, found in methods.items()
    ]
    context = {"about": api["info"], "tags": api["tags"], "operations": operations, "schemas": schemas.values()}
    return render(request, "api/page.html", **context, statuses=PROBLEMS, command=_command)


async def _known_caller(request: Request) -> Any:
    try:
        return await request.app.state.authenticator.identify(request)
    except (Problem, psycopg.Error):
        return None


def _roles(request: Request) -> dict[str, str]:
    """Return the role that each operation requires."""
    return {
        route.name: each.call.role.value
        for route in request.app.state.routes
        for each in route.dependant.dependencies
        if isinstance(each.call, RequireRole)
    }


def _operation(schemas: Mapping[str, Shown], found: Part) -> Shown:
    """Return an operation as it is described, with its parameters and bodies as the page shows them."""
    statuses = [int(status) for status in found["responses"]]
    return {
        **found,
        "tag": found["tags"][-1],
        "parameters": [_parameter(each) for each in found.get("parameters", [])],
        "request": _content(schemas, found["requestBody"]) if "requestBody" in found else None,
        "status": min(statuses),
        "response": _content(schemas, found["responses"][str(min(statuses))]),
        "problems": [each for each in statuses if each >= min(PROBLEMS)],
    }


def _command(operation: Part) -> str:
    """Return the call with curl, which only lacks the address and the token."""
    lines = [f'curl -X {operation["method"]} "$URL{operation["path"]}" -H "Authorization: Bearer $TOKEN"']
    if operation["request"] is not None:
        example = json.dumps(json.loads(operation["request"]["example"]))
        lines += [f'  -H "Content-Type: {JSON}"', f"  -d {shlex.quote(example)}"]
    return " \\\n".join(lines)


def _parameter(found: Part) -> Shown:
    schema, text = found["schema"], found.get("description", "")
    default = schema.get("default")
    told = f" `{default}` unless given." if default not in (None, "") and "nless given" not in text else ""
    return _member(found["name"], schema, text + told, is_required=found.get("required", False), place=found["in"])


def _content(schemas: Mapping[str, Shown], found: Part) -> Shown:
    """Return the body of a request or of a response; an example of its own stands instead of that of its schema."""
    content = found["content"][JSON]
    name = _name_of(content["schema"])
    body = schemas[name] if name else {"schema": "", "text": "Any JSON value.", "members": [], "example": ""}
    return body | ({"example": _pretty(content["example"])} if "example" in content else {})


def _body(name: str, schema: Part) -> Shown:
    required = schema.get("required", [])
    examples = schema.get("examples")
    values = f" One of {_type_name(schema)}." if "enum" in schema else ""
    return {
        "schema": name,
        "text": schema.get("description", "") + values,
        "members": [
            _member(member, about, about.get("description", ""), is_required=member in required)
            for member, about in schema.get("properties", {}).items()
        ],
        "example": _pretty(examples[0]) if examples else "",
    }


def _member(name: str, schema: Part, text: str, *, is_required: bool, place: str = "") -> Shown:
    """Return a member of a body, or a parameter with its place: path, query or header."""
    # The schema that it refers to, directly, in a list or as one possibility.
    referred = re.search(r"#/components/schemas/(\w+)", json.dumps(schema))
    return {
        "name": name,
        "type": _type_name(schema),
        "schema": referred[1] if referred else "",
        "text": text,
        "is_required": is_required,
        "place": place,
    }


def _type_name(schema: Part) -> str:
    """Return the type of a schema for people: `string | null`."""
    if "$ref" in schema:
        return _name_of(schema)
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(_type_name(each) for each in schema["anyOf"]))
    if schema.get("type") == "array":
        return f"array of {_type_name(schema.get('items', {}))}"
    named = schema.get("type", "any")
    return f"{named} ({schema['format']})" if "format" in schema else str(named)


def _name_of(schema: Part) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)
