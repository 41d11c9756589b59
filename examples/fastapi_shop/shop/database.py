from __future__ import annotations

import os

from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "shop_order"

    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]
    cents: Mapped[int]
    points: Mapped[int | None]


engine = create_async_engine(os.environ["SHOP_DATABASE_URL"])
new_session: async_sessionmaker[AsyncSession] = async_sessionmaker(engine, expire_on_commit=False)
