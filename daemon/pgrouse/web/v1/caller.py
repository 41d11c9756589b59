"""Who asks, as the routes of `/v1` take it: one name per role."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends

from pgrouse.web.caller import Caller, Role
from pgrouse.web.security import needs

Viewer = Annotated[Caller, Depends(needs(Role.VIEWER))]
Publisher = Annotated[Caller, Depends(needs(Role.PUBLISHER))]
Worker = Annotated[Caller, Depends(needs(Role.WORKER))]
Operator = Annotated[Caller, Depends(needs(Role.OPERATOR))]
