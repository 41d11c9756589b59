"""A stream that cannot be read, with a reason that Spark should show.

An exception in the constructor of a stream's reader is lost: the process that calls it fails because it has no reader.
(Seen with Spark 4.3: "cannot access local variable 'reader'".) So the reason is kept until Spark asks the first
question.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit

    from pgrouse.errors import PgrouseError


class RefusedStream(DataSourceStreamReader):
    """Answers every question with an error."""

    def __init__(self, reason: PgrouseError) -> None:
        self._reason = reason

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name, here and below
        """Raise it."""
        self._raise()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Raise it."""
        self._raise()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Raise it."""
        self._raise()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Raise it."""
        self._raise()

    def read(self, partition: InputPartition) -> NoReturn:
        """Raise it."""
        self._raise()

    def _raise(self) -> NoReturn:
        raise self._reason
