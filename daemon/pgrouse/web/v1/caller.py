"""Dependencies of the routes of `/v1` that require a role, one for each role."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends

from pgrouse.web.access.caller import Caller, Role
from pgrouse.web.access.security import require_role

Viewer = Annotated[Caller, Depends(require_role(Role.VIEWER))]
Publisher = Annotated[Caller, Depends(require_role(Role.PUBLISHER))]
Worker = Annotated[Caller, Depends(require_role(Role.WORKER))]
Operator = Annotated[Caller, Depends(require_role(Role.OPERATOR))]
