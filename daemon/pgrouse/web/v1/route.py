"""How a route of `/v1` gets the body that it asks for: read strictly, and beside the event loop if it is large."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from pgrouse import jsonb
from pgrouse.errors import PublishRefused
from pgrouse.web.security import Needs
from pgrouse.web.problem import problem_of

# What a description of all faults has at most.
MOST_FAULTS = 100


class Route(APIRoute):
    """A route whose body, when the framework comes to it, is a model already: the framework would make one on the event loop."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what answers a request."""
        answer, field = super().get_route_handler(), self.body_field
        doors = [each.call for each in self.dependant.dependencies if isinstance(each.call, Needs)]
        if field is None:
            return answer

        async def handle(request: Request) -> Response:
            try:
                content = await request.body()
            except ClientDisconnect as error:
                raise problem_of(error) from error
            # The framework asks this too; but nobody's body is parsed for nothing.
            for door in doors:
                await door(request)
            if not content or not _is_json(request):
                return await answer(request)
            value = await request.app.state.aside.run(len(content), read, field.validate, content)
            return await answer(_Ready(request, content, value))

        return handle


class _Ready(Request):
    """A request whose body was read."""

    def __init__(self, request: Request, content: bytes, value: Any) -> None:
        super().__init__(request.scope, request.receive)
        self._body, self._json = content, value


def read(validate: Callable[..., tuple[Any, list[Any]]], content: bytes) -> Any:
    """Return what a body says.

    Raises:
        RequestValidationError: it is no JSON, could not be kept as it is, or does not fit its description.
    """
    try:
        given = jsonb.decode(content.decode(), "body")
    except UnicodeDecodeError as error:
        raise _fault(f"no UTF-8 at byte {error.start}") from None
    except PublishRefused as error:
        raise _fault(str(error).removeprefix("body ")) from None
    value, faults = validate(given, loc=("body",))
    if faults:
        raise RequestValidationError(faults[:MOST_FAULTS])
    return value


def _fault(what: str) -> RequestValidationError:
    return RequestValidationError([{"loc": ("body",), "msg": what}])


def _is_json(request: Request) -> bool:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))
