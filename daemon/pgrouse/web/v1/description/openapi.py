"""`/v1/openapi.json`: the OpenAPI description. It needs no token."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any, get_args, get_origin

from fastapi import APIRouter, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from starlette.responses import Response

from pgrouse.web.http.base_path import base_path
from pgrouse.web.v1.description.member_texts import EXAMPLES, EXAMPLES_OF_TYPES, TEXTS
from pgrouse.web.v1.description.problem_responses import add_problem_responses, shared_responses
from pgrouse.web.v1.messages.publish import PublishBatchRequest, PublishRequest
from pgrouse.web.v1.model import ProblemDetails, RequestModel, ResponseModel
from pgrouse.web.v1.response import ApiResponse

router = APIRouter(prefix="/v1", include_in_schema=False)

ABOUT = """The HTTP API of pgrouse: publish, process and manage messages from any language.

Every error is `application/problem+json`. Lists are paged: pass `next` of one page as the `cursor` of the
following request; it is null on the last page.
"""
TAGS = {
    "publish": "Publish messages, alone or in batches.",
    "work": "Process messages: claim, extend locks, settle. Every call is fenced by the `claim_id`.",
    "messages": "Find, show, explain and change single messages.",
    "batches": "Messages that are counted together.",
    "workflows": "Messages that come after others.",
    "events": "Events for which handlers wait: signal them, and hand out URLs that do.",
    "dead": "Messages that ended without success: list, group, redrive.",
    "topics": "Counts, states, policies, thresholds and pauses of topics.",
    "channels": "Limits and pauses of single channels of a topic.",
    "subscriptions": "Copies of the messages of a topic for other topics.",
    "schedules": "Messages that are published by cron expressions.",
    "workers": "The processes that process messages.",
    "stats": "Counts of the whole queue, and the doctor.",
    "alerts": "What is wrong now, who was told, and what silences alerts.",
    "tokens": "Who may use this server. Only `pgrouse token add` creates a token.",
    "exports": "Exports of the archive to a lake.",
    "maintenance": "Run the maintenance by hand.",
    "audit": "Who did what.",
}
SECURITY_SCHEMES = {
    "token": {"type": "http", "scheme": "bearer", "description": "`pgrouse token add`"},
    "basic": {"type": "http", "scheme": "basic", "description": "The token as the password, with any name."},
}
# Models of bodies that routes read or write by themselves.
HAND_WRITTEN: tuple[type[BaseModel], ...] = (PublishRequest, PublishBatchRequest, ProblemDetails)
VALIDATION_ERRORS = ("HTTPValidationError", "ValidationError")


def description(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI description; generated once. It names no server: see `show_description`."""
    if app.openapi_schema is None:
        app.openapi_schema = _generate(app)
    return app.openapi_schema


def _generate(app: FastAPI) -> dict[str, Any]:
    tags = [{"name": name, "description": text} for name, text in TAGS.items()]
    generated = get_openapi(
        title="pgrouse", version=version("pgrouse"), description=ABOUT, routes=app.routes, tags=tags
    )
    schema = _without_aliases(generated)
    schema["components"] = {
        "schemas": _schemas(schema["components"]["schemas"]),
        "responses": shared_responses(),
        "securitySchemes": SECURITY_SCHEMES,
    }
    schema["security"] = [{name: []} for name in SECURITY_SCHEMES]
    for operation in _operations(schema):
        add_problem_responses(operation)
        for parameter in operation.get("parameters", []):
            _add_text(parameter, parameter["name"])
    return schema


def _without_aliases(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the description without schemas that only refer to another one.

    Generators make two classes of the same name of them.
    """
    schemas = schema["components"]["schemas"]
    aliases = {name: body["$ref"] for name, body in schemas.items() if set(body) == {"$ref"}}
    schema["components"]["schemas"] = {name: body for name, body in schemas.items() if name not in aliases}
    text = json.dumps(schema)
    for name, target in aliases.items():
        text = text.replace(f'"#/components/schemas/{name}"', json.dumps(target))
    plain: dict[str, Any] = json.loads(text)
    return plain


def _operations(schema: dict[str, Any]) -> list[dict[str, Any]]:
    return [operation for methods in schema["paths"].values() for operation in methods.values()]


def _schemas(generated: dict[str, Any]) -> dict[str, Any]:
    """Return all schemas by name, each with its example and with a text for each member."""
    # The error responses of FastAPI are not those of this API.
    schemas = {name: schema for name, schema in generated.items() if name not in VALIDATION_ERRORS}
    for model in HAND_WRITTEN:
        described = model.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas |= described.pop("$defs", {})
        schemas[model.__name__] = described
    _restore_examples(schemas)
    for schema in schemas.values():
        for name, member in schema.get("properties", {}).items():
            _add_text(member, name)
            _tell_default(member)
    return dict(sorted(schemas.items()))


def _restore_examples(schemas: dict[str, Any]) -> None:
    """Set the examples: get_openapi leaves out what is null in them."""
    for model in _models(RequestModel, ResponseModel):
        if model.__name__ in schemas and model not in HAND_WRITTEN and (made := _example(model)):
            schemas[model.__name__]["examples"] = [made]


def _example(model: type[BaseModel]) -> dict[str, Any]:
    """Return an example: what the model says of some members, and what the names of the others have everywhere."""
    given: dict[str, Any] = {}
    for base in reversed(model.__mro__):
        given |= getattr(base, "model_config", {}).get("json_schema_extra", {"examples": [{}]})["examples"][0]
    return {
        name: given[name] if name in given else _example_of(name, field.annotation)
        for name, field in model.model_fields.items()
        if name in given or field.is_required()
    }


def _example_of(name: str, type_: Any) -> Any:
    kinds = get_args(type_) or (type_,)
    if type(None) in kinds:
        return None
    if isinstance(kinds[0], type) and issubclass(kinds[0], BaseModel):
        return [_example(kinds[0])]
    return EXAMPLES.get(name, EXAMPLES_OF_TYPES.get(get_origin(type_) or type_))


def _tell_default(member: dict[str, Any]) -> None:
    """Move a default into the text.

    Generators for TypeScript take a member with a default for one that is always there.
    """
    default = member.pop("default", None)
    if default is not None and "nless given" not in member["description"]:
        member["description"] += f" `{json.dumps(default).strip(chr(34))}` unless given."


def _models(*bases: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for base in bases:
        for model in base.__subclasses__():
            yield model
            yield from _models(model)


def _add_text(described: dict[str, Any], name: str) -> None:
    if name in TEXTS:
        described.setdefault("description", TEXTS[name])


@router.get("/openapi.json")
async def show_description(request: Request) -> Response:
    """Return the OpenAPI description. Its server is `web.url`, or the host that it was read from."""
    server = request.app.state.settings.web.url or base_path(request.scope) or "/"
    # Generated once, which takes longer than other requests should wait.
    described = await asyncio.to_thread(description, request.app)
    content = {**described, "servers": [{"url": server}]}
    return ApiResponse(content, headers={"Cache-Control": "no-cache"})
