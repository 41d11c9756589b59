"""A PostgreSQL to try pgrouse on: found on this machine, or created.

Only the demo and the tests use it; it is not for production.
"""

from pgrouse.devdb.choice import DatabaseServer, find
from pgrouse.devdb.container import Container
from pgrouse.devdb.installation import Installation, embedded, local
from pgrouse.devdb.server import FAST_UNSAFE_SETTINGS, PrivateServer
from pgrouse.devdb.shared import shared

__all__ = [
    "FAST_UNSAFE_SETTINGS",
    "Container",
    "DatabaseServer",
    "Installation",
    "PrivateServer",
    "embedded",
    "find",
    "local",
    "shared",
]
