"""Writes values in conditions: as literals, or as references to values that are sent separately from the statement.

Tasks read by COPY, which takes no parameters, and pg_stat_statements has an entry for each text of a COPY (before
PostgreSQL 16 even if only its literals differ). So the values of a slice are sent as a setting of the transaction, and
the text is the same for all slices of a read, and for the same read later.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

SETTING = "pgrouse.values"


class Values:
    """The values of one statement; `write` is a `scope.Write`."""

    def __init__(self) -> None:
        self._values: list[Any] = []

    def write(self, value: Any, type_: str) -> str:
        """Add a value, and return its reference in the statement.

        It is a subquery, with the conversion inside, so that it is evaluated once and not for every row.
        """
        self._values.append(value)
        place = len(self._values) - 1
        values = f"pg_catalog.current_setting('{SETTING}')::jsonb"
        if type_.endswith("[]"):
            return f"(SELECT ARRAY(SELECT pg_catalog.jsonb_array_elements_text({values} -> {place}))::{type_})"
        return f"(SELECT ({values} ->> {place})::{type_})"

    def text(self) -> str:
        """Return the value of the setting."""
        return json.dumps(self._values, default=datetime.isoformat)
