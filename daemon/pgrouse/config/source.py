"""The sources of the configuration: the TOML file, the environment, flags. Each value remembers its origin."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pgrouse.errors import ConfigError

Key = tuple[str | int, ...]

PREFIX = "PGROUSE_"
SEPARATOR = "__"
COMMAND = ("-m", "pgrouse")
BOM = "\ufeff"
WITHOUT_BOM = 'save the file as UTF-8 without it (some editors call that "UTF-8", and the other "UTF-8 with BOM")'


@dataclass(frozen=True)
class Origin:
    """The place where one value was given.

    It is a line of the file or of code, an environment variable, a flag, or nowhere (the default).
    """

    kind: str = "default"
    file: Path | None = None
    line: int | None = None
    variable: str | None = None

    def __str__(self) -> str:
        if self.file is not None:
            return f"{self.file}:{self.line}" if self.line else str(self.file)
        return self.variable or self.kind


@dataclass(frozen=True)
class ConfigProblem:
    """One problem of a configuration."""

    origin: Origin
    key: str
    text: str

    def __str__(self) -> str:
        return f"{self.origin}: {self.text}"


class ConfigProblems(ConfigError):
    """All problems of a configuration, one line each."""

    def __init__(self, problems: list[ConfigProblem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


class TopicKeyError(ConfigError):
    """A problem with a key of a topic other than its handler."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(text)
        self.key = key


@dataclass
class ConfigSource:
    """Values, and the origin of each key.

    Attributes:
        modules: the modules of schedules that code declares, by name.
        host: the program whose settings are among these values.
    """

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[Key, Origin] = field(default_factory=dict)
    problems: list[ConfigProblem] = field(default_factory=list)
    modules: dict[str, str] = field(default_factory=dict)
    host: HostProgram | None = None

    def put(self, key: Key, value: Any, origin: Origin) -> None:
        """Set one value; it replaces an existing one."""
        self.put_value(key, value)
        self.origins[key] = origin

    def put_value(self, key: Key, value: Any) -> None:
        """Set one value, and keep its recorded origin."""
        table = self.values
        for name in key[:-1]:
            inner = table.get(name)  # type: ignore[arg-type]
            table[name] = table = inner if isinstance(inner, dict) else {}  # type: ignore[index]
        table[key[-1]] = value  # type: ignore[index]

    def origin(self, key: Key) -> Origin:
        """Return where the key was given, or otherwise the nearest table around it."""
        while key and key not in self.origins:
            key = key[:-1]
        return self.origins.get(key, Origin())

    def exact_origin(self, key: Key) -> Origin:
        """Return where this value was given.

        It was given by itself, or as a part of a value that is not a table, as in `backoff = "linear"`.
        """
        if key in self.origins:
            return self.origins[key]
        outer = key[:-1]
        while outer and outer not in self.origins:
            outer = outer[:-1]
        return Origin() if not outer or isinstance(self._value(outer), dict) else self.origins[outer]

    def _value(self, key: Key) -> Any:
        found: Any = self.values
        for name in key:
            found = found.get(name) if isinstance(found, dict) else None
        return found

    def over(self, lower: ConfigSource) -> ConfigSource:
        """Return the values of both. If both have a setting, this one's value is used as a whole."""
        merged = ConfigSource(
            _copied(self.values), dict(self.origins), list(self.problems), dict(lower.modules), self.host
        )
        for key, value in _settings(lower.values, ()):
            if self._has_no_table_or_setting(key):
                merged.put(key, value, lower.origin(key))
                below = {each: origin for each, origin in lower.origins.items() if each[: len(key)] == key}
                merged.origins |= below
        return merged

    def _has_no_table_or_setting(self, key: Key) -> bool:
        """Whether a setting can be put under these values.

        It must not exist there, and everything around it must be a table.
        """
        found: Any = self.values
        for name in key:
            if not isinstance(found, dict):
                return False
            if name not in found:
                return True
            found = found[name]
        return False


@dataclass(frozen=True)
class HostProgram:
    """A program with its own settings that runs pgrouse, such as a Django project.

    Attributes:
        command: the arguments of the interpreter that run the command line within the program.
        source: the settings of the program. The file, the environment and the flags override them.
        modules: where handlers may come from, in addition to the modules that the file permits.
        name: what the database records for the schedules of its settings, if there is no file.
        time_zone: that of schedules which name none, and where it was set; None = UTC.
    """

    command: tuple[str, ...]
    source: ConfigSource
    name: str
    modules: tuple[str, ...] = ()
    time_zone: tuple[str, Origin] | None = None


def _copied(value: Any) -> Any:
    return {name: _copied(inner) for name, inner in value.items()} if isinstance(value, dict) else value


def _settings(values: dict[str, Any], table: Key) -> Iterator[tuple[Key, Any]]:
    """Yield the settings of topics and schedules.

    The value of a setting may be a table, as with backoff and payload.
    """
    for name, value in values.items():
        key = (*table, name)
        # As in topics, NAME, channels, NAME.
        is_table = len(key) <= 2 or (key[2] == "channels" and len(key) <= 4)  # noqa: PLR2004
        if is_table and isinstance(value, dict):
            yield from _settings(value, key)
        else:
            yield key, value


def show_key(key: Key) -> str:
    """Write a key as in TOML: `topics."orders.created".handler`."""
    return "".join(map(_show_part, key)).removeprefix(".")


def _show_part(part: str | int) -> str:
    if isinstance(part, int):
        return f"[{part}]"
    return f".{part}" if re.fullmatch(r"[A-Za-z0-9_-]+", part) else "." + json.dumps(part, ensure_ascii=False)


def read_file(path: Path, environ: Mapping[str, str]) -> ConfigSource:
    """Read a TOML file, and replace `${NAME}` in its strings by environment variables.

    Raises:
        ConfigProblems: it cannot be read, or is not TOML.
    """
    text = _text(path)
    if text.startswith(BOM):
        raise ConfigProblems(
            [ConfigProblem(Origin("file", path, 1), "", f"begins with a byte order mark: {WITHOUT_BOM}")]
        )
    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: also an integer of more than 4,300 digits
        raise ConfigProblems([_syntax_problem(path, text, error)]) from error
    source = ConfigSource()
    for key, line in _key_lines(text):
        source.origins.setdefault(key, Origin("file", path, line))
    source.origins[()] = Origin("file", path)
    source.values = _expanded(values, (), environ, source)
    return source


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ConfigProblems(
            [ConfigProblem(Origin("file", path, line), "", "is not UTF-8: save the file in that encoding")]
        ) from error
    except OSError as error:
        fix = ": run `pgrouse init`, or name the file by --config" if isinstance(error, FileNotFoundError) else ""
        raise ConfigProblems(
            [ConfigProblem(Origin("file", path), "", f"cannot be read ({error.strerror}){fix}")]
        ) from error


def _syntax_problem(path: Path, text: str, error: Exception) -> ConfigProblem:
    if isinstance(error, RecursionError):
        return ConfigProblem(Origin("file", path), "", "is nested too deeply")
    at_end = " (at end of document)"
    message = str(error).removesuffix(at_end)
    line = text.count("\n") + 1 if str(error).endswith(at_end) else None
    if found := re.search(r" \(at line (\d+), column (\d+)\)$", message):
        message, line = f"{message[: found.start()]}, column {found[2]}", int(found[1])
    return ConfigProblem(Origin("file", path, line), "", f"is no TOML: {message}")


def _key_lines(text: str) -> Iterator[tuple[Key, int]]:
    """Yield every key of a TOML text and its line, in the order of the lines; the text is known to be valid.

    tomllib keeps no positions. But every statement is a valid document by itself, so each is parsed separately.
    """
    rows = text.replace("\r\n", "\n").split("\n")
    table: Key = ()
    counts: dict[Key, int] = {}
    row = 0
    while row < len(rows):
        statement, end = _statement(rows, row)
        if rows[row].lstrip().startswith("["):
            table = _header_key(statement, counts)
            for depth in range(len(table)):
                yield table[: depth + 1], row + 1
        else:
            for key in _keys(statement):
                yield (*table, *key), row + 1
        row = end


def _statement(rows: list[str], start: int) -> tuple[dict[str, Any], int]:
    """Return the statement that begins on a row, and the row after it: a value may span many."""
    for end in range(start + 1, len(rows) + 1):
        try:
            return tomllib.loads("\n".join(rows[start:end])), end
        except tomllib.TOMLDecodeError:
            continue
    return {}, len(rows)


def _header_key(statement: dict[str, Any], counts: dict[Key, int]) -> Key:
    """Return the key of a `[table]` or, with its number, of a `[[table]]`."""
    key: Key = ()
    inner: Any = statement
    while inner and isinstance(inner, dict):
        name, inner = next(iter(inner.items()))
        key = (*key, name)
    if isinstance(inner, list):
        counts[key] = counts.get(key, -1) + 1
        key = (*key, counts[key])
    return key


def _keys(values: dict[str, Any]) -> Iterator[Key]:
    for name, value in values.items():
        yield (name,)
        if isinstance(value, dict):
            for key in _keys(value):
                yield (name, *key)


def _expanded(value: Any, key: Key, environ: Mapping[str, str], source: ConfigSource) -> Any:
    """Return the value with `${NAME}` and `${NAME:-default}` replaced in its strings; `$${` stays `${`."""
    if isinstance(value, dict):
        return {name: _expanded(inner, (*key, name), environ, source) for name, inner in value.items()}
    if isinstance(value, list):
        return [_expanded(inner, (*key, i), environ, source) for i, inner in enumerate(value)]
    if not isinstance(value, str):
        return value

    def replace(found: re.Match[str]) -> str:
        if found[0].startswith("$$"):
            return "${"
        if (known := environ.get(found["name"]) or found["default"]) is not None:
            return known
        text = (
            f"{show_key(key)} needs the environment variable {found['name']}, which is not set: "
            f"set it, or write ${{{found['name']}:-default}}"
        )
        source.problems.append(ConfigProblem(source.origin(key), show_key(key), text))
        return ""

    return re.sub(r"\$\$\{|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}", replace, value)


def read_environment(environ: Mapping[str, str]) -> Iterator[tuple[Key, str, Origin]]:
    """Yield the values of `PGROUSE_SECTION__KEY` variables, as text. An empty variable is ignored."""
    for variable, text in sorted(environ.items()):
        if text and variable.startswith(PREFIX) and SEPARATOR in variable:
            key = tuple(variable.removeprefix(PREFIX).lower().split(SEPARATOR))
            yield key, text, Origin("environment", variable=variable)
