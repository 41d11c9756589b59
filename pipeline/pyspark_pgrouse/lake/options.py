"""The options of the format `pgrouse` for reading a lake."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import from_arrow_schema

from pgrouse.errors import ConfigError
from pyspark_pgrouse.lake.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

KNOWN = ("lake", "versionAsOf", "storageOptions", "topics", "since", "until", "pushdown")


@dataclass(frozen=True)
class LakeOptions:
    """The options of one read, checked.

    Attributes:
        url: the URL of the lake.
        version: the version of the table; None = the newest.
        storage: options of the store for delta-rs, in addition to the environment. They may hold secrets.
        topics: only these; () = all.
        since: only what was archived at this moment or later.
        until: only what was archived before this moment.
        pushdown: whether filters of the query leave out files; None = if the session allows it.
    """

    url: str
    version: int | None
    storage: dict[str, str] = field(repr=False)
    topics: tuple[str, ...]
    since: datetime | None
    until: datetime | None
    pushdown: bool | None

    @classmethod
    def parse(cls, mapping: Mapping[str, str]) -> LakeOptions:
        """Parse the options that Spark passes.

        Raises:
            ConfigError: an option is not known, or has a value that is not allowed.
        """
        given = {str(name).lower(): str(value) for name, value in mapping.items()}
        if unknown := sorted(set(given) - {name.lower() for name in KNOWN}):
            raise ConfigError(f"option {unknown[0]} does not go with option lake; known here: {', '.join(KNOWN)}")
        topics = tuple(t.strip() for t in given["topics"].split(",")) if "topics" in given else ()
        version = given.get("versionasof")
        if version is not None and not (version.isascii() and version.isdecimal()):
            raise ConfigError(f"option versionAsOf must be a version of the table, found {version!r}")
        return cls(
            url=given["lake"],
            version=None if version is None else int(version),
            storage=_storage(given),
            topics=topics,
            since=_moment(given, "since"),
            until=_moment(given, "until"),
            pushdown=_flag(given, "pushdown") if "pushdown" in given else None,
        )

    def ddl(self) -> str:
        """Return the columns of the lake in Spark's DDL."""
        schema: StructType = from_arrow_schema(self.open().schema)
        return ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in schema)

    def open(self) -> Lake:
        """Open the lake.

        Raises:
            ConfigError: there is none, or it has no such version.
        """
        lake = Lake.open(self.url, self.storage)
        return lake if self.version is None else lake.as_of(self.version)


def _moment(given: dict[str, str], name: str) -> datetime | None:
    text = given.get(name)
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ConfigError(f"option {name} must be a moment with its time zone like 2026-03-01T00:00Z, found {text!r}")
    return moment


def _storage(given: dict[str, str]) -> dict[str, str]:
    try:
        found = json.loads(given.get("storageoptions", "{}"))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        # Do not repeat the value: it may hold a secret.
        raise ConfigError('option storageOptions must be a JSON object like {"AWS_REGION": "eu-central-1"}')
    return {str(name): str(value) for name, value in found.items()}


def _flag(given: dict[str, str], name: str) -> bool:
    text = given[name].lower()
    if text not in ("true", "false"):
        raise ConfigError(f"option {name} must be true or false, found {given[name]!r}")
    return text == "true"
