"""The logger of every module.

structlog is slow to import (it also imports rich, if that is installed), and few commands and publishers log.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any


class EventLogger:
    """A logger of structlog, which is imported when the first event is logged."""

    @cached_property
    def _logger(self) -> Any:
        import structlog  # noqa: PLC0415 - slow to import: only processes that log need it

        return structlog.get_logger()

    def __getattr__(self, method: str) -> Any:
        """Return the method of the logger."""
        return getattr(self._logger, method)


log = EventLogger()
