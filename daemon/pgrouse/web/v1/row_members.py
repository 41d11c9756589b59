"""Responses whose members are the columns of a row: the class of the row has their names, types and meanings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Any, get_type_hints

from pydantic import Field, create_model

from pgrouse.web.v1.model import ResponseModel

JSON_SUFFIX = "_json"
# A line below `Attributes:`, with those that continue it.
ATTRIBUTE = re.compile(r"^    (\w+): (.+(?:\n {5,}.+)*)", re.MULTILINE)
# How a response writes values.
WRITTEN: dict[Any, Any] = {
    timedelta: float,
    timedelta | None: float | None,
    bytes | None: str | None,
}


def members_of(
    row: type[Any], *, only: Collection[str] = (), without: Collection[str] = ()
) -> Callable[[type[ResponseModel]], Any]:
    """Add the columns of a row to the members of a response; those that it has itself stay as they are."""

    def add(model: type[ResponseModel]) -> type[ResponseModel]:
        members: dict[str, Any] = {}
        for column, type_ in get_type_hints(row).items():
            name = column.removesuffix(JSON_SUFFIX)
            if name not in without and name not in model.model_fields and (not only or name in only):
                written = Any if column.endswith(JSON_SUFFIX) else WRITTEN.get(type_, type_)
                members[name] = written, Field(description=_meanings(row).get(column))
        made = create_model(
            model.__name__, __base__=model, __doc__=model.__doc__, __module__=model.__module__, **members
        )
        # In the order of the columns.
        names = [column.removesuffix(JSON_SUFFIX) for column in get_type_hints(row)]
        fields = made.model_fields
        made.__pydantic_fields__ = {name: fields[name] for name in dict.fromkeys([*names, *fields]) if name in fields}
        made.model_rebuild(force=True)
        return made

    return add


def _meanings(row: type[Any]) -> dict[str, str]:
    """Return the meanings of columns as the class of a row describes them, and as a reader of JSON calls None."""
    classes = [each for each in reversed(row.__mro__) if each.__doc__]
    texts = {name: text for each in classes for name, text in ATTRIBUTE.findall(inspect.cleandoc(each.__doc__ or ""))}
    return {name: _sentence(" ".join(text.split()).rstrip(".")) for name, text in texts.items()}


def _sentence(text: str) -> str:
    # "on, paused or over" are values.
    begin = text[0] if re.match(r"\S+[,:;]", text) else text[0].upper()
    return re.sub(r"\bNone\b", "null", begin + text[1:]).replace(" =", ":") + "."
