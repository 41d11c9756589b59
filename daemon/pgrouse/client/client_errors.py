"""The errors of `Client` and `AsyncClient`: each is a PgrouseError, with the error that it stands for as its cause."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pydantic

from pgrouse.config.policy_settings import TopicPolicy
from pgrouse.database_errors import explain_database_error
from pgrouse.errors import DatabaseUnreachable, InvalidSetting, RequestRefused


@contextmanager
def own_errors() -> Iterator[None]:
    """Raise errors of psycopg and pydantic in this block as errors of pgrouse."""
    try:
        yield
    except psycopg.Error as error:
        text, _ = explain_database_error(error)
        if error.sqlstate is None and isinstance(error, psycopg.OperationalError):
            raise DatabaseUnreachable(text) from error
        raise RequestRefused(text, error.sqlstate) from error
    except pydantic.ValidationError as error:
        raise InvalidSetting("; ".join(map(_describe, error.errors(include_url=False)))) from error


def _describe(problem: object) -> str:
    assert isinstance(problem, dict)  # noqa: S101 - as pydantic has them
    name = ".".join(map(str, problem["loc"]))
    if problem["type"] != "extra_forbidden":
        return f"{name}: {problem['msg']}"
    near = difflib.get_close_matches(name, TopicPolicy.names(), n=1)
    return f"{name}: there is no such setting" + (f"; did you mean {near[0]!r}?" if near else "")
