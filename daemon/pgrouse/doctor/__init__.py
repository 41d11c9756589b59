"""Finds problems that cause no error, and says how to fix them.

`examine(settings)` looks at everything that is known to go wrong silently, and says of each whether it does. What SQL can see it asks
`messages.doctor`'s parts; what only a client can see (does a notification arrive, is there a pooler, is the schema that of this version) it
looks at itself. It changes nothing, and ends within a bounded time.
"""

from pgrouse.doctor.finding import Finding, Level
from pgrouse.doctor.runner import CODES, examine

__all__ = ["CODES", "Finding", "Level", "examine"]
