"""The common base of all tables of the configuration."""

from __future__ import annotations

from datetime import timedelta

from pydantic import ConfigDict

from pgrouse.config.described_model import DescribedModel

S = timedelta(seconds=1)


class Section(DescribedModel):
    """A table of the file: frozen, with no unknown keys, and no type conversion."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
