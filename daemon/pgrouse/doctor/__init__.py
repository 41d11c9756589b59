"""What goes wrong without a word, and how to mend it.

`examine(settings)` looks at everything that is known to go wrong silently, and says of each whether it does. What SQL can see it asks
`messages.doctor`'s parts; what only a client can see (does a notification arrive, is there a pooler, is the schema that of this version) it
looks at itself. It changes nothing, and ends within a bounded time.
"""

from pgrouse.doctor.runner import CODES, examine
from pgrouse.doctor.finding import Finding, Level

__all__ = ["CODES", "Finding", "Level", "examine"]
