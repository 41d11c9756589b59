from __future__ import annotations

import os
import secrets
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException, Request
from pydantic import BaseModel, Field
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import RedirectResponse

from pgrouse import Worker
from pgrouse.web import Caller, Role
from pgrouse.web import app as queue
from shop.database import Base, Order, engine, new_session
from shop.jobs import OrderCreated, order_created

CONFIG = Path(__file__).parents[1] / "pgrouse.toml"
STAFF_KEY = os.environ.get("SHOP_STAFF_KEY") or secrets.token_urlsafe()
worker = Worker(CONFIG)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async with worker:
        yield
    await engine.dispose()


def staff(request: Request) -> Caller | None:
    """Return who may see the dashboard: visitors who opened the address with the key."""
    is_staff = secrets.compare_digest(request.cookies.get("shop_staff", ""), STAFF_KEY)
    return Caller("staff", frozenset({Role.OPERATOR})) if is_staff else None


async def session() -> AsyncIterator[AsyncSession]:
    async with new_session() as opened, opened.begin():
        yield opened


Session = Annotated[AsyncSession, Depends(session, scope="function")]  # committed before the response is sent
app = FastAPI(lifespan=lifespan)
app.mount("/queue", queue(CONFIG, authenticate=staff))


class NewOrder(BaseModel):
    customer: str
    cents: int = Field(ge=0)


@app.post("/orders", status_code=201)
async def create_order(new: NewOrder, session: Session) -> dict[str, int]:
    """Store an order, and publish the message about it in the same transaction."""
    order = Order(**new.model_dump())
    session.add(order)
    await session.flush()
    message_id = await order_created.publish(session, OrderCreated(order_id=order.id), key=f"order-{order.id}")
    return {"id": order.id, "message": message_id}


@app.get("/orders/{order_id}")
async def show_order(order_id: int, session: Session) -> dict[str, int | str | None]:
    order = await session.get(Order, order_id)
    if order is None:
        raise HTTPException(404)
    return {"id": order.id, "customer": order.customer, "cents": order.cents, "points": order.points}


@app.get("/health")
async def health() -> dict[str, str]:
    if not worker.is_running:
        raise HTTPException(503, "the worker has stopped")
    return {"worker": worker.name}


@app.get("/staff/{key}")
async def log_in(key: str) -> RedirectResponse:
    if not secrets.compare_digest(key, STAFF_KEY):
        raise HTTPException(403)
    answer = RedirectResponse("/queue/")
    answer.set_cookie("shop_staff", STAFF_KEY, httponly=True, samesite="strict")
    return answer
