"""Models whose fields are described by the docstrings below them.

pydantic's `use_attribute_docstrings` reads the source of each class when the class is created, which takes half of the
time that importing the configuration takes. Here the docstrings are read only when they are needed: for a help text, a
form, a JSON Schema.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from itertools import pairwise
from typing import Any

from pydantic import BaseModel, GetJsonSchemaHandler
from pydantic_core import CoreSchema


class DescribedModel(BaseModel):
    """A model whose JSON Schema has the docstrings of its fields."""

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Describe each field."""
        described = handler(schema)
        properties = handler.resolve_ref_schema(described).get("properties", {})
        for name in properties.keys() & meanings(cls).keys():
            properties[name]["description"] = meanings(cls)[name]
        return described


@cache
def meanings(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstrings of the fields of a model, including those that it inherits."""
    classes = [each for each in reversed(model.__mro__) if issubclass(each, DescribedModel)]
    found = {name: text for each in classes for name, text in _read(each.__module__).get(each.__name__, {}).items()}
    return {name: text for name, text in found.items() if name in model.model_fields}


@cache
def _read(module: str) -> dict[str, dict[str, str]]:
    """Return the docstrings of fields in the classes of a module; none where Python has no source."""
    try:
        source = inspect.getsource(import_module(module))
    except OSError:
        return {}
    return {each.name: dict(_docstrings(each)) for each in ast.parse(source).body if isinstance(each, ast.ClassDef)}


def _docstrings(class_: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for pair in pairwise(class_.body):
        match pair:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(value=ast.Constant(str(text))):
                yield name, inspect.cleandoc(text)
