"""Finds problems that cause no error, and says how to fix them.

`examine(settings)` checks for every known silent problem, and reports whether it exists. SQL, the parts of
`messages.doctor`, checks what the server can see. This package checks what only a client can see: whether a
notification arrives, whether there is a pooler, whether the schema has this version. It changes nothing, and ends
within a bounded time.
"""

from pgrouse.doctor.finding import Finding, Level
from pgrouse.doctor.runner import CODES, examine

__all__ = ["CODES", "Finding", "Level", "examine"]
