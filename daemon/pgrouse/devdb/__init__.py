"""A PostgreSQL to try pgrouse on: found on this machine, or made. Nothing but the demo and the tests uses it; it is not for production."""

from pgrouse.devdb.choice import Place, find
from pgrouse.devdb.container import Container
from pgrouse.devdb.installation import Installation, embedded, local
from pgrouse.devdb.server import FAST_AND_LOOSE, Server

__all__ = ["FAST_AND_LOOSE", "Container", "Installation", "Place", "Server", "embedded", "find", "local"]
