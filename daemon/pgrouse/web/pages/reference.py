"""`/v1/docs`: the OpenAPI description as a page to read, with a form for each operation that sends it."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psycopg
from fastapi import APIRouter, Request
from starlette.responses import Response

from pgrouse.web.access.security import RequireRole
from pgrouse.web.http.problem import Problem
from pgrouse.web.page.page import render
from pgrouse.web.v1.description.openapi import description
from pgrouse.web.v1.description.problem_responses import PROBLEMS

router = APIRouter(prefix="/v1", include_in_schema=False)

JSON = "application/json"


@dataclass(frozen=True)
class Member:
    """A parameter, or a member of a body.

    Attributes:
        place: where a parameter stands: path, query or header; "" for a member.
        type: for people: `string | null`.
        schema: the schema that it refers to; "" if none.
    """

    name: str
    type: str
    is_required: bool
    text: str
    place: str = ""
    schema: str = ""


@dataclass(frozen=True)
class Body:
    """A body of a request or of a response.

    Attributes:
        schema: its name; "" if it is any JSON.
        example: as JSON text.
    """

    schema: str
    text: str
    members: list[Member]
    example: str


@dataclass(frozen=True)
class DocumentedOperation:
    """An operation, as the page shows it."""

    id: str
    method: str
    path: str
    summary: str
    text: str
    role: str
    parameters: list[Member]
    request: Body | None
    status: str
    response: Body
    problems: list[int]

    @property
    def command(self) -> str:
        """The call with curl, which only lacks the address and the token."""
        lines = [f'curl -X {self.method} "$URL{self.path}" -H "Authorization: Bearer $TOKEN"']
        if self.request is not None:
            example = json.dumps(json.loads(self.request.example))
            lines += [f'  -H "Content-Type: {JSON}"', f"  -d {shlex.quote(example)}"]
        return " \\\n".join(lines)


@dataclass(frozen=True)
class Group:
    """The operations of a tag."""

    name: str
    text: str
    operations: list[DocumentedOperation]


@router.get("/docs")
async def show_reference(request: Request) -> Response:
    """Show the page; with the navigation of the dashboard to callers that it knows."""
    request.state.caller = await _known_caller(request)
    api = await asyncio.to_thread(description, request.app)
    context = {
        "about": api["info"],
        "groups": groups(api, _roles(request)),
        "schemas": schemas(api),
        "statuses": PROBLEMS,
    }
    return render(request, "api.html", **context)


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


def groups(api: Mapping[str, Any], roles: Mapping[str, str]) -> list[Group]:
    """Return the operations by their last tag, in the order of the tags."""
    operations = [
        (found["tags"][-1], _operation(api, path, method, found, roles[found["operationId"]]))
        for path, methods in api["paths"].items()
        for method, found in methods.items()
    ]
    return [
        Group(tag["name"], tag["description"], [each for name, each in operations if name == tag["name"]])
        for tag in api["tags"]
    ]


def schemas(api: Mapping[str, Any]) -> list[Body]:
    """Return all schemas, by name."""
    return [_body_of(api, name) for name in api["components"]["schemas"]]


def type_name(schema: Mapping[str, Any]) -> str:
    """Return the type of a schema for people."""
    if "$ref" in schema:
        return _name_of(schema)
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(type_name(each) for each in schema["anyOf"]))
    if schema.get("type") == "array":
        return f"array of {type_name(schema.get('items', {}))}"
    named = schema.get("type", "any")
    return f"{named} ({schema['format']})" if "format" in schema else str(named)


def _operation(
    api: Mapping[str, Any], path: str, method: str, found: Mapping[str, Any], role: str
) -> DocumentedOperation:
    statuses = [int(status) for status in found["responses"]]
    status = str(min(statuses))
    content = found["responses"][status]["content"][JSON]
    return DocumentedOperation(
        id=found["operationId"],
        method=method.upper(),
        path=path,
        summary=found["summary"],
        text=found["description"],
        role=role,
        parameters=[_parameter(each) for each in found.get("parameters", [])],
        request=_body(api, found["requestBody"]["content"][JSON]) if "requestBody" in found else None,
        status=status,
        response=_body(api, content),
        problems=[each for each in statuses if each >= min(PROBLEMS)],
    )


def _parameter(found: Mapping[str, Any]) -> Member:
    schema, text = found["schema"], found.get("description", "")
    default = schema.get("default")
    told = f" `{default}` unless given." if default not in (None, "") and "nless given" not in text else ""
    return Member(found["name"], type_name(schema), found.get("required", False), text + told, found["in"])


def _body(api: Mapping[str, Any], content: Mapping[str, Any]) -> Body:
    name = _name_of(content["schema"])
    body = _body_of(api, name) if name else Body("", "Any JSON value.", [], "")
    example = _pretty(content["example"]) if "example" in content else body.example
    return Body(body.schema, body.text, body.members, example)


def _body_of(api: Mapping[str, Any], name: str) -> Body:
    schema = api["components"]["schemas"][name]
    required = schema.get("required", [])
    members = [
        Member(member, type_name(about), member in required, about.get("description", ""), schema=_referred(about))
        for member, about in schema.get("properties", {}).items()
    ]
    examples = schema.get("examples")
    values = f" One of {type_name(schema)}." if "enum" in schema else ""
    return Body(name, schema.get("description", "") + values, members, _pretty(examples[0]) if examples else "")


def _referred(schema: Mapping[str, Any]) -> str:
    """Return the name of the schema that a member refers to, directly, in a list or as one possibility."""
    found = re.search(r"#/components/schemas/(\w+)", json.dumps(schema))
    return found[1] if found else ""


def _name_of(schema: Mapping[str, Any]) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)
