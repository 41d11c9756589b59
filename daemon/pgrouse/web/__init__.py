"""The web server: the HTTP API `/v1` and the dashboard. The daemon never imports it.

`app` makes an ASGI application to mount in another one; `Caller` and `Role` say there who sends a request. `Content` is
what the function of `web.redact` is called with.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from pgrouse.errors import ConfigError

if TYPE_CHECKING:
    from pgrouse.web.access.caller import Caller, Role
    from pgrouse.web.access.redaction import Content
    from pgrouse.web.mounted_app import MountedApp, app

__all__ = ["Caller", "Content", "MountedApp", "Role", "app"]

MODULES = {"Caller": "access.caller", "Role": "access.caller", "Content": "access.redaction"}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used: the command line must not import the framework with it."""
    if name not in __all__:
        raise AttributeError(f"module 'pgrouse.web' has no attribute {name!r}")
    module = f"pgrouse.web.{MODULES.get(name, 'mounted_app')}"
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("pgrouse"):
            raise
        raise ConfigError(f"{error.name} is not installed: pip install 'pgrouse[web]'") from error
