"""Handlers of an installation without the extra `schemas`."""

from __future__ import annotations

import sys

sys.modules["jsonschema_rs"] = None

from work import echo  # noqa: E402, F401
