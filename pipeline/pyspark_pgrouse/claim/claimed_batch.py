"""The messages that one batch of `consume` has claimed: a share for each connection."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pyspark_pgrouse.claim.claim_client import ClaimedRow
from pyspark_pgrouse.claim.claim_ref import ClaimRef


@dataclass(frozen=True)
class ClaimedShare:
    """The messages that one connection claimed.

    It goes from executors to the driver and back, so the ids are packed: 8 bytes each.

    Attributes:
        ids: the ids of the messages, by claim.
        lock_duration_s: the shortest lock among them, in seconds.
        timeout_s: the shortest timeout of the messages, their own or that of their topics, in seconds; None = none has
            one.
    """

    ids: Mapping[int, array[int]] = field(default_factory=dict)
    lock_duration_s: float = 0
    timeout_s: float | None = None

    @classmethod
    def of(cls, claimed: Iterable[ClaimedRow]) -> ClaimedShare:
        """Pack claimed messages."""
        rows = list(claimed)
        ids: dict[int, array[int]] = {}
        for row in rows:
            ids.setdefault(row.claim_id, array("q")).append(row.id)
        return cls(ids, min((row.lock_duration_s for row in rows), default=0), shortest(row.timeout_s for row in rows))

    def __len__(self) -> int:
        return sum(map(len, self.ids.values()))

    def refs(self) -> list[ClaimRef]:
        """Return id and claim of each message, by id."""
        return sorted((id_, claim_id) for claim_id, ids in self.ids.items() for id_ in ids)


@dataclass(frozen=True)
class ClaimedBatch:
    """All shares of a batch, none of them empty."""

    shares: tuple[ClaimedShare, ...] = ()

    def __len__(self) -> int:
        return sum(map(len, self.shares))

    @property
    def claims(self) -> list[int]:
        """The numbers of its claims."""
        return [claim_id for share in self.shares for claim_id in share.ids]

    @property
    def lock_duration_s(self) -> float:
        """The shortest lock of its messages, in seconds; 0 if there are none."""
        return min((share.lock_duration_s for share in self.shares), default=0)

    @property
    def timeout_s(self) -> float | None:
        """The shortest timeout of the topics of its messages, in seconds; None = no topic has one."""
        return shortest(share.timeout_s for share in self.shares)

    def refs(self) -> list[ClaimRef]:
        """Return id and claim of each message, by id."""
        return sorted(ref for share in self.shares for ref in share.refs())


def shortest(timeouts: Iterable[float | None]) -> float | None:
    """Return the shortest of timeouts; None = there is none."""
    return min((each for each in timeouts if each is not None), default=None)
