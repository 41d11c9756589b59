"""The name of the queue's schema, of all that is named after it, and how it comes into statements.

The SQL files and the statements of the package say `messages`. For another name each of them is rendered: the qualifier
of the schema, its roles, its NOTIFY channels and its settings get their names for that schema, and nothing else
changes. A schema `messages` is never rendered. docs/decisions/0042-a-statement-is-rendered-for-its-schema.md says why.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, lru_cache

WRITTEN = "messages"  # as the SQL files and the statements call the schema
ROLES = ("owner", "publisher", "worker", "operator", "analyst", "maintainer", "cron")
VARIABLE = "PGROUSE_DATABASE__SCHEMA"
# PostgreSQL cuts names at 63 bytes, and names of jobs of pg_cron are the longest: `<schema>.prune_cron_history`.
MAX_BYTES = 44
# They end or escape something in one of the texts that a name is written into: literals, bodies of functions, formats,
# placeholders, connection strings.
REFUSED = "'\\$%.:"
# Others use them, and the rights of all that they hold would change.
RESERVED = ("public", "information_schema", "cron", "pgmq", "pgrouse")
# Longer texts are files, which are rendered once.
CACHED_CHARS = 20_000

TOKEN = re.compile(
    r"""
    (?P<comment> --[^\n]* | /\*.*?\*/ )
    | (?P<tag> \$ (?:[^\W\d]\w*)? \$ ) (?P<body> .*? ) (?P=tag)
    | (?P<escaped> [eE]' (?: [^'\\] | '' | \\. )* ' )
    | (?P<literal> ' (?: [^'] | '' )* ' )
    | (?P<quoted> " (?: [^"] | "" )* " )
    | (?P<word> [^\W\d] [\w$]* )
    """,
    re.VERBOSE | re.DOTALL,
)
LITERALS = ("literal", "escaped", "body")
# The text before a token, in the same statement.
AFTER_SCHEMA = re.compile(r"\bSCHEMA\s+(?:IF\s+(?:NOT\s+)?EXISTS\s+)?$", re.IGNORECASE)
AFTER_SET = re.compile(r"\b(?:SET|SET\s+LOCAL|SET\s+SESSION|RESET|SHOW)\s+$", re.IGNORECASE)
# At the beginning of a statement: these are no reserved words.
AFTER_LISTEN = re.compile(r"(?:^|;)\s*(?:LISTEN|UNLISTEN|NOTIFY)\s+$", re.IGNORECASE)
IN_SETTING = re.compile(r"\b(?:current_setting|set_config)\s*\(\s*$", re.IGNORECASE)
IN_NOTIFY = re.compile(r"\b(?:pg_)?notify\s*\(\s*$", re.IGNORECASE)
# A literal `messages` is a word of English elsewhere.
IS_COMPARED = re.compile(r"(?:=|<>)\)?\s*$|_privilege\s*\([^()]*$", re.IGNORECASE)
IN_TO_REG = re.compile(r"\bto_reg(?:namespace|role)\s*\(\s*$", re.IGNORECASE)
# The text after it.
QUALIFIES = re.compile(r"\s*\.")
IS_REG = re.compile(r"\s*::\s*(?:pg_catalog\s*\.\s*)?reg(?:namespace|role)\b", re.IGNORECASE)
LEFT_CHARS = 80

ROLE = re.compile(rf"{WRITTEN}_({'|'.join(ROLES)})")
# In a literal: parts of statements that are put together, and texts for people.
IN_TEXT = re.compile(
    rf"""
    (?<! [\w.$"] ) {WRITTEN} \. (?= [\w%"*<] )
    | (?<! [\w.$"] ) {ROLE.pattern} (?! \w )
    | (?<= \b(?i:schema)\ ) {WRITTEN} (?! \w )
    """,
    re.VERBOSE,
)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _settings_prefix(name: str) -> str:
    """Return a name that is valid in front of a setting, another one for each schema.

    The server compares these names without regard to case, and allows letters, digits, `_` and `$` in them.
    """
    if re.fullmatch("[a-z_][a-z0-9_]*", name):
        return name
    escaped = re.sub(rb"[^a-z0-9_]", lambda found: b"$%02x" % found[0][0], name.encode()).decode()
    return escaped if re.match("[a-z]", escaped) else f"_{escaped}"


class SchemaName:
    """The name of a schema. There is one object for each name: see `schema_name`.

    Attributes:
        name: as `pg_namespace` has it.
        quoted: as an identifier in quotes.
        identifier: the name in a statement.
        is_default: whether statements need no rendering.
        settings: the first part of the names of its settings, which only lower-case letters, digits and `_` may be in.
    """

    __slots__ = ("identifier", "is_default", "name", "quoted", "settings")

    def __init__(self, name: str) -> None:
        self.name = checked(name)
        self.is_default = name == WRITTEN
        self.quoted = _quoted(name)
        self.identifier = WRITTEN if self.is_default else self.quoted
        self.settings = _settings_prefix(name)

    def __repr__(self) -> str:
        """Return the name."""
        return f"SchemaName({self.name!r})"

    def __reduce__(self) -> tuple[object, tuple[str]]:
        """Become the one object of this name in another process."""
        return schema_name, (self.name,)

    def role(self, kind: str) -> str:
        """Return the name of one of its roles: `publisher`, `worker` and so on."""
        return f"{self.name}_{kind}"

    def channel(self, name: str) -> str:
        """Return the name of one of its NOTIFY channels: NOTIFY reaches the whole database."""
        return name if self.is_default else f"{self.name}_{name}"

    def setting(self, name: str) -> str:
        """Return the name of one of its settings, as `set_config` takes it."""
        return f"{self.settings}.{name}"

    def text(self, text: str) -> str:
        """Return a text for people, about the schema `messages`, as one about this schema."""
        if self.is_default:
            return text
        return _in_text(text, self).replace(f"`{WRITTEN}`", f"`{self.name}`")

    def render(self, sql: str) -> str:
        """Return a statement or a script about the schema `messages` as one about this schema."""
        if self.is_default:
            return sql
        return _rendered(sql, self.name) if len(sql) <= CACHED_CHARS else _render(sql, self)

    def render_around_values(self, sql: str) -> str:
        """Return the same of a statement whose literals are values, which stay as they are."""
        return sql if self.is_default else _render(sql, self, keep_literals=True)

    def render_bytes(self, sql: bytes) -> bytes:
        """Return the same of UTF-8; a repeated statement is one object, whose hash is cached."""
        if self.is_default:
            return sql
        return _rendered_bytes(sql, self.name) if len(sql) <= CACHED_CHARS else self.render(sql.decode()).encode()


def checked(name: str) -> str:
    """Return a name unchanged.

    Raises:
        ValueError: a schema of the queue cannot have this name.
    """
    if not name or len(name.encode()) > MAX_BYTES:
        raise ValueError(
            f"the name of a schema has 1 to {MAX_BYTES} bytes, since the names of its roles and jobs begin with it, "
            f"found {len(name.encode())}"
        )
    if found := next((each for each in name if each in REFUSED or not each.isprintable()), None):
        raise ValueError(f"the name of a schema may not contain {found!r}: use letters, digits, spaces, _ or -")
    if name in RESERVED or name.startswith("pg_") or name != name.strip():
        raise ValueError(f"the queue needs a schema of its own, and cannot have the name {name!r}")
    return name


@cache
def schema_name(name: str) -> SchemaName:
    """Return the object of a name.

    Raises:
        ValueError: a schema of the queue cannot have this name.
    """
    return SchemaName(name)


DEFAULT = schema_name(WRITTEN)
_current: ContextVar[SchemaName | None] = ContextVar("pgrouse_schema", default=None)
_default: SchemaName | None = None


def current() -> SchemaName:
    """Return the schema that calls mean here.

    It is that of `use_schema` or of the worker whose handler calls, else that of the process or of the environment.
    """
    return _current.get() or _default or _of_environment()


def set_default(schema: SchemaName) -> None:
    """Let calls in this process mean this schema: it is the one of its configuration."""
    global _default  # noqa: PLW0603 - a process has one configuration
    _default = schema


@cache
def _of_environment() -> SchemaName:
    return schema_name(os.environ.get(VARIABLE) or WRITTEN)


@contextmanager
def use_schema(name: str | SchemaName) -> Iterator[None]:
    """Let the calls of a block mean the queue in this schema; await them in the block.

    It is not needed in handlers, where calls mean the queue of their worker, nor with a `Client` of another schema.

    Raises:
        ValueError: a schema of the queue cannot have this name.
    """
    token = _current.set(schema_name(name) if isinstance(name, str) else name)
    try:
        yield
    finally:
        _current.reset(token)


@lru_cache(maxsize=4096)
def _rendered(sql: str, name: str) -> str:
    return _render(sql, schema_name(name))


@lru_cache(maxsize=4096)
def _rendered_bytes(sql: bytes, name: str) -> bytes:
    return _render(sql.decode(), schema_name(name)).encode()


def _render(sql: str, schema: SchemaName, *, keep_literals: bool = False) -> str:
    parts: list[str] = []
    end = 0
    for token in TOKEN.finditer(sql):
        replaced = None if keep_literals and token.lastgroup in LITERALS else _replaced(token, sql, schema)
        if replaced is not None:
            parts += [sql[end : token.start()], replaced]
            end = token.end()
    return "".join([*parts, sql[end:]])


def _replaced(token: re.Match[str], sql: str, schema: SchemaName) -> str | None:
    """Return what a token becomes; None: it stays."""
    text = token[0]
    match token.lastgroup:
        case "body":
            return f"{token['tag']}{_render(token['body'], schema)}{token['tag']}"
        case "literal" | "escaped":
            quote = text.index("'") + 1
            return text[:quote] + _literal(text[quote:-1], _left(token, sql), sql[token.end() :][:60], schema) + "'"
        case "word":
            return _identifier(text, text.lower(), token, sql, schema)
        case "quoted":
            return _identifier(text, text[1:-1], token, sql, schema)
    return None


def _left(token: re.Match[str], sql: str) -> str:
    start = token.start()
    return sql[:start] if start <= LEFT_CHARS else "\N{HORIZONTAL ELLIPSIS}" + sql[start - LEFT_CHARS : start]


def _identifier(text: str, name: str, token: re.Match[str], sql: str, schema: SchemaName) -> str | None:
    if name == WRITTEN:
        left = _left(token, sql)
        if AFTER_SCHEMA.search(left):
            return schema.identifier
        if not QUALIFIES.match(sql, token.end()) or left.endswith("."):
            return None
        return schema.settings if AFTER_SET.search(left) else schema.identifier
    if role := ROLE.fullmatch(name):
        return _quoted(schema.role(role[1]))
    return _quoted(schema.channel(name)) if AFTER_LISTEN.search(_left(token, sql)) else None


def _literal(text: str, left: str, right: str, schema: SchemaName) -> str:
    if IN_SETTING.search(left) and text.startswith(f"{WRITTEN}."):
        return schema.settings + text.removeprefix(WRITTEN)
    if IN_NOTIFY.search(left):
        return schema.channel(text)
    is_parsed = IS_REG.match(right) or IN_TO_REG.search(left)
    if role := ROLE.fullmatch(text):
        return _quoted(schema.role(role[1])) if is_parsed else schema.role(role[1])
    if text == WRITTEN and is_parsed:
        return schema.identifier
    if text == WRITTEN:
        return schema.name if IS_COMPARED.search(left) else text
    return f"{schema.identifier}." if text == f"{WRITTEN}." else _in_text(text, schema)


def _in_text(text: str, schema: SchemaName) -> str:
    def replaced(found: re.Match[str]) -> str:
        if found[1]:
            return _quoted(schema.role(found[1]))
        return schema.identifier + ("." if found[0].endswith(".") else "")

    return IN_TEXT.sub(replaced, text)
