"""The reference to a claimed message, for code that settles or extends it: its id and the number of its claim."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

ClaimRef = tuple[int, int]


def unzip(refs: Iterable[ClaimRef]) -> tuple[list[int], list[int]]:
    """Return ids and claims separately, as the functions that settle or extend take them."""
    known = list(refs)
    return [id_ for id_, _ in known], [claim_id for _, claim_id in known]


def chunks(refs: Sequence[ClaimRef], size: int) -> Iterator[tuple[list[int], list[int]]]:
    """Yield ids and claims in pieces of at most `size`."""
    return (unzip(refs[at : at + size]) for at in range(0, len(refs), size))
