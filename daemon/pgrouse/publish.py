"""Moved to `pgrouse.publishing`: a module of this name hides the function `pgrouse.publish`."""

from pgrouse.publishing import NewMessage, publish, publish_many

__all__ = ["NewMessage", "publish", "publish_many"]
