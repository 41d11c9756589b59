"""The Spark side of pgrouse: the format `pgrouse`, and jobs over the archive.

Spark finds the format by the name of this package: whatever is importable and begins with `pyspark_` is asked for a `DefaultSource`.
"""

from pyspark_pgrouse.source import DefaultSource

__all__ = ["DefaultSource"]
