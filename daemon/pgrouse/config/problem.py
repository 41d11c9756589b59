"""The problems of a configuration, in the terms of its author."""

from __future__ import annotations

import difflib
from typing import Any

from pydantic_core import ErrorDetails

from pgrouse.config import validation_text
from pgrouse.config.source import ConfigProblem, ConfigSource, Key, show_key

# Keys whose values are never repeated.
SECRETS = frozenset({("database", "dsn"), ("database", "listen_dsn")})
# Below this table a key may be in a wrong place, even as a name: do not repeat any value, nor a long name.
HIDING = "crypto"
LONGEST_NAME = 24
# In TOML, an object is a table.
EXPECTED = validation_text.EXPECTED | {
    **dict.fromkeys(("model_type", "dict_type"), "expected a table of keys"),
    "path_type": "expected a path in quotes",
}
NAMES = {
    "handler": 'expected "module:function"',
    "retry_strategy": 'expected "module:function"',
    "allowed_modules": 'expected the name of a module like "shop.jobs", or "*"',
    "modules": 'expected the name of a module like "shop.jobs"',
    "schedules": "is no name of a schedule: 1 to 100 of A-Z a-z 0-9 . _ : - and a letter or digit first",
    "name": "must be 1 to 200 printable characters",
    "channels": "is no channel name: 1 to 200 printable characters",
    "subscriptions": validation_text.NO_PATTERN,
    "topics": validation_text.NO_PATTERN,
}


def to_problem(error: ErrorDetails, source: ConfigSource, known: list[str]) -> ConfigProblem:
    """Convert an error of pydantic to a problem in the terms of the user.

    known: the keys that are allowed at the place of the error.
    """
    key = tuple(part for part in error["loc"] if part != "[key]")
    origin, key = source.origin(key), _showable(key)
    match error["type"]:
        case "extra_forbidden":
            text = _unquoted(key) if _has_a_dot(key, error["input"]) else _unknown(key, known)
        case "missing":
            text = f"{show_key(key)} is missing"
        case "value_error":
            text = f"{show_key(key)}: {_describe(key, error)}"
        case "string_pattern_mismatch" as kind:
            name = next((str(part) for part in reversed(key) if part in NAMES), "")
            expected = NAMES.get(name) or EXPECTED[kind].format(**error["ctx"])
            text = f"{show_key(key)}: {expected}{_found(key, error['input'])}"
        case kind:
            expected = EXPECTED.get(kind, f"cannot be used ({kind})").format(**error.get("ctx", {}))
            text = f"{show_key(key)}: {expected}{_found(key, error['input'])}"
    return ConfigProblem(origin, show_key(key), text)


def _showable(key: Key) -> Key:
    """Return a key without those of its parts that may be secrets."""
    if HIDING not in key[:1]:
        return key
    return tuple("..." if isinstance(part, str) and len(part) > LONGEST_NAME else part for part in key)


def _has_a_dot(key: Key, value: Any) -> bool:
    """Whether this is [topics.order.created], which TOML reads as a table `created` of the topic `order`."""
    return key[:1] == ("topics",) and len(key) == len(("topics", "order", "created")) and isinstance(value, dict)


def _unquoted(key: Key) -> str:
    table, *parts = (str(each) for each in key)
    return (
        f"unknown key {parts[-1]!r} in [{table}.{parts[0]}]; if the topic is {'.'.join(parts)}, quote its name: "
        f'[{table}."{".".join(parts)}"]'
    )


def _unknown(key: Key, known: list[str]) -> str:
    *table, name = key
    near = difflib.get_close_matches(str(name), known, n=1)
    fix = f"did you mean '{near[0]}'?" if near else f"known keys: {', '.join(known)}"
    shown = "unknown key" if HIDING in key[:1] else f"unknown key '{name}'"
    return shown + (f" in [{show_key(tuple(table))}]" if table else "") + f"; {fix}"


def _describe(key: Key, error: ErrorDetails) -> str:
    """Return the text of a check of pgrouse, which may end with the value."""
    text = str(error["ctx"]["error"])
    return text.partition(", found ")[0] if HIDING in key[:1] and not isinstance(error["input"], dict) else text


def _found(key: Key, value: Any) -> str:
    if key in SECRETS or HIDING in key[:1]:
        return ""
    if isinstance(value, bool):
        return f", found {str(value).lower()}"
    return f", found {value!r:.80}" if isinstance(value, str | int | float) else f", found {_type_name(value)}"


def _type_name(value: Any) -> str:
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    return f"a {type(value).__name__}"
