"""The Spark side of pgrouse: the format `pgrouse`, and jobs over the archive.

Spark finds the format by the name of this package: it asks every importable package whose name begins with `pyspark_`
for a `DefaultSource`.
"""

from __future__ import annotations

from typing import Any

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> Any:
    """Import the format when Spark asks for it: the report works without Spark."""
    if name != "DefaultSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pyspark_pgrouse.source import DefaultSource  # noqa: PLC0415 - extra spark

    return DefaultSource
