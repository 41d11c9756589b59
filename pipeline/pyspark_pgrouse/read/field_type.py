"""Types of Spark for JSON: the type that a JSON Schema allows, the type of a value, and the common type of two."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

# A type with more fields than this, inner ones included, or with deeper nesting, becomes text. A schema may be written
# to have a billion fields.
MAX_FIELDS = 500
MAX_DEPTH = 20
BIGINT_BITS = 63

UNKNOWN, TEXT, STRUCT, ARRAY, MAP = "", "STRING", "STRUCT", "ARRAY", "MAP"
OF_VALUE = {type(None): UNKNOWN, bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", str: TEXT}
SCALARS = {"string": TEXT, "integer": "BIGINT", "number": "DOUBLE", "boolean": "BOOLEAN"}


@dataclass(frozen=True)
class FieldType:
    """A type. A value without a single type is text: Spark then has it as JSON.

    Attributes:
        name: its name in Spark's DDL; `` = unknown, because the value was null.
        fields: the fields of a STRUCT.
        element: the element of an ARRAY or a MAP.
    """

    name: str = UNKNOWN
    fields: dict[str, FieldType] = field(default_factory=dict)
    element: FieldType | None = None

    @cached_property
    def size(self) -> int:
        """How many types it consists of."""
        return 1 + sum(each.size for each in self.fields.values()) + (self.element.size if self.element else 0)

    def merged(self, other: FieldType) -> FieldType:
        """Return a type that accepts the values of both."""
        names = {self.name, other.name}
        if UNKNOWN in names:
            return other if self.name == UNKNOWN else self
        if names == {"BIGINT", "DOUBLE"}:
            return FieldType("DOUBLE")
        if len(names) > 1:
            return FieldType(TEXT)
        if self.element and other.element:
            return replace(self, element=self.element.merged(other.element))
        return _struct(_merged_fields(self.fields, other.fields)) if self.name == STRUCT else self

    def ddl(self) -> str:
        """Return it in Spark's DDL."""
        match self.name:
            case name if name == UNKNOWN:
                return TEXT
            case name if name == ARRAY:
                return f"ARRAY<{(self.element or FieldType()).ddl()}>"
            case name if name == MAP:
                return f"MAP<STRING, {(self.element or FieldType()).ddl()}>"
            case name if name == STRUCT:
                fields = self.fields_ddl()
                return TEXT if fields is None else f"STRUCT<{fields}>"
        return self.name

    def fields_ddl(self) -> str | None:
        """Return the fields of a struct; None if it has no field that can name a column."""
        named = {name: of for name, of in self.fields.items() if name}
        return None if not named else ", ".join(f"{_quoted(name)} {of.ddl()}" for name, of in named.items())


def _struct(fields: dict[str, FieldType]) -> FieldType:
    made = FieldType(STRUCT, fields)
    return made if made.size <= MAX_FIELDS else FieldType(TEXT)


def _merged_fields(some: dict[str, FieldType], others: dict[str, FieldType]) -> dict[str, FieldType]:
    names = dict.fromkeys([*some, *others])
    return {name: some.get(name, FieldType()).merged(others.get(name, FieldType())) for name in names}


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def of_value(value: Any, depth: int = 0) -> FieldType:
    """Return the type of a value of JSON."""
    if isinstance(value, dict | list):
        return FieldType(TEXT) if depth >= MAX_DEPTH else _of_nested(value, depth + 1)
    if isinstance(value, int) and value.bit_length() > BIGINT_BITS:
        return FieldType(TEXT)
    return FieldType(OF_VALUE[type(value)])


def _of_nested(value: dict[str, Any] | list[Any], depth: int) -> FieldType:
    if isinstance(value, list):
        return FieldType(ARRAY, element=_common(of_value(each, depth) for each in value))
    return _struct({name: of_value(each, depth) for name, each in value.items()})


def _common(types: Iterable[FieldType]) -> FieldType:
    found = FieldType()
    for each in types:
        found = found.merged(each)
    return found


def of_schema(schema: Any) -> FieldType:
    """Return the type of the values that a JSON Schema allows.

    Everything that it does not define, or not in a way that is read here, is text.
    """
    return SchemaReader(schema).read(schema)


class SchemaReader:
    """Reads the parts of one JSON Schema, each referenced part once."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._referred: dict[str, FieldType] = {}

    def read(self, schema: Any, depth: int = 0) -> FieldType:
        """Return the type of the values that a part allows; depth: its depth in the whole."""
        if depth > MAX_DEPTH or not isinstance(schema, dict):
            return FieldType(TEXT)
        if "$ref" in schema:
            return self._read_reference(str(schema["$ref"]), depth)
        variants = [each for key in ("anyOf", "oneOf", "allOf") for each in _list(schema.get(key))]
        return self._read_typed(schema, depth).merged(_common(self.read(each, depth + 1) for each in variants))

    def _read_reference(self, reference: str, depth: int) -> FieldType:
        if reference not in self._referred:
            self._referred[reference] = FieldType(TEXT)  # for a schema that refers to itself
            self._referred[reference] = self.read(_part(self._root, reference), depth + 1)
        return self._referred[reference]

    def _read_typed(self, schema: dict[str, Any], depth: int) -> FieldType:
        if "type" in schema:
            types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
            return _common(self._read_type(str(each), schema, depth) for each in types)
        if "const" in schema:
            return of_value(schema["const"], depth)
        if isinstance(schema.get("enum"), list):
            return _common(of_value(each, depth) for each in schema["enum"])
        return self._read_object(schema, depth) if "properties" in schema else FieldType()

    def _read_type(self, name: str, schema: dict[str, Any], depth: int) -> FieldType:
        match name:
            case "null":
                return FieldType()
            case "object":
                return self._read_object(schema, depth)
            case "array":
                return FieldType(ARRAY, element=self.read(schema.get("items", {}), depth + 1))
        return FieldType(SCALARS.get(name, TEXT))

    def _read_object(self, schema: dict[str, Any], depth: int) -> FieldType:
        properties, more = schema.get("properties"), schema.get("additionalProperties")
        if isinstance(properties, dict) and properties:
            return _struct({name: self.read(each, depth + 1) for name, each in properties.items()})
        if isinstance(more, dict):
            return FieldType(MAP, element=self.read(more, depth + 1))
        return FieldType(TEXT)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _part(root: Any, reference: str) -> Any:
    """Return the part of a schema that `#/$defs/name` names; None if there is none."""
    if not reference.startswith("#"):
        return None
    found = root
    for step in filter(None, reference[1:].split("/")):
        name = step.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, dict) else None
    return found
