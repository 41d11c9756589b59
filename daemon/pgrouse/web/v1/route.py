"""Routes of `/v1` that parse their JSON body strictly, and large bodies in a thread."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request
from fastapi._compat import ModelField
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from pgrouse.errors import InvalidMessage
from pgrouse.values import jsonb
from pgrouse.web.access.security import RequireRole
from pgrouse.web.http.problem import to_problem
from pgrouse.web.v1.model import invalid_body

# The maximum number of errors that are reported.
MAX_ERRORS = 100


class StrictRoute(APIRoute):
    """A route that parses and validates the body itself: FastAPI would do it on the event loop."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of a request."""
        answer, field = super().get_route_handler(), self.body_field
        role_checks = [each.call for each in self.dependant.dependencies if isinstance(each.call, RequireRole)]
        if field is None:
            return answer

        async def handle(request: Request) -> Response:
            try:
                content = await request.body()
            except ClientDisconnect as error:
                raise to_problem(error) from error
            # FastAPI checks the role too, but only after the body was parsed.
            for check_role in role_checks:
                await check_role(request)
            if not content or not _is_json(request):
                return await answer(request)
            value = await request.app.state.large_bodies.run(len(content), parse_body, field, content)
            return await answer(_ParsedRequest(request, content, value))

        return handle


class _ParsedRequest(Request):
    """A request whose body was parsed."""

    def __init__(self, request: Request, content: bytes, value: Any) -> None:
        super().__init__(request.scope, request.receive)
        self._body, self._json = content, value


def parse_body(field: ModelField, content: bytes) -> Any:
    """Parse and validate a request body.

    Raises:
        RequestValidationError: it is not JSON, cannot be stored as it is, or does not match the model.
    """
    try:
        given = jsonb.decode(content.decode(), "body")
    except UnicodeDecodeError as error:
        raise _validation_error(f"invalid UTF-8 at byte {error.start}") from None
    except InvalidMessage as error:
        raise _validation_error(str(error).removeprefix("body ")) from None
    value, errors = field.validate(given, loc=("body",))
    if errors:
        raise invalid_body(field.field_info.annotation, errors[:MAX_ERRORS])
    return value


def _validation_error(what: str) -> RequestValidationError:
    return RequestValidationError([{"loc": ("body",), "msg": what}])


def _is_json(request: Request) -> bool:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))
