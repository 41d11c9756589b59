"""The options of the format `pgrouse` for reading a lake."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import from_arrow_schema

from pgrouse.errors import ConfigError
from pyspark_pgrouse.lake.lake import Lake
from pyspark_pgrouse.options import Operation, flag, moment, names, number

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
        now = datetime.now(UTC)
        return cls(
            url=given["lake"],
            version=number(given, "versionAsOf", None, least=0),
            storage=_storage(given),
            topics=names(given, "topics"),
            since=moment(given, "since", Operation.BATCH, now),
            until=moment(given, "until", Operation.BATCH, now),
            pushdown=flag(given, "pushdown"),
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


def _storage(given: dict[str, str]) -> dict[str, str]:
    try:
        found = json.loads(given.get("storageoptions", "{}"))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        # Do not repeat the value: it may hold a secret.
        raise ConfigError('option storageOptions must be a JSON object like {"AWS_REGION": "eu-central-1"}')
    return {str(name): str(value) for name, value in found.items()}
