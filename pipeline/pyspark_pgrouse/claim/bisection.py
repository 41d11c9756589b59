"""A batch whose function raised: it is worked again in halves until those messages are found that make it raise, each of them alone.

An error of a batch says nothing about its messages: the function's sink may be down. So an attempt is used up only by a message that fails
alone while the function works others, and, where nothing tells which of the two it is, by one message of the batch. All others are given
back with their attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyspark_pgrouse.claim.outcome import Outcome, Settled

# Where so many calls have not told them apart, most of a batch is at fault, or the function is.
CALLS = 500
# A message: its id and the number of its claim.
Pair = tuple[int, int]
Row = tuple[int, int, str | None, str | None, Any]


class Bisection:
    """One search.

    Args:
        work: works some messages and settles them; returns what became of them, or the error of the function as text.
        settle: settles rows of id, claim_id, outcome, reason and after.
        is_stopped: whether to give back what is left instead of going on.

    Attributes:
        settled: what became of the messages so far.
        at_fault: the errors of those that used up an attempt, by id.
        has_failed: whether the function went on to raise: messages were given back, or it worked none.
    """

    def __init__(
        self,
        work: Callable[[Sequence[Pair]], Settled | str],
        settle: Callable[[Sequence[Row]], Settled],
        is_stopped: Callable[[], bool],
    ) -> None:
        self.settled = Settled()
        self.at_fault: dict[int, str] = {}
        self.has_failed = True
        self._work, self._settle, self._is_stopped = work, settle, is_stopped
        # Failed alone since the function worked last; not divided any more since then; and how often it has raised in a row.
        self._suspects: list[tuple[Pair, str]] = []
        self._whole: list[Sequence[Pair]] = []
        self._raised = 0

    def run(self, held: Sequence[Pair], error: str) -> None:
        """Search the messages of a batch whose function raised this."""
        # So many errors lead from the whole batch to one message. After them only a part that succeeds tells that there is more to find.
        patience = len(held).bit_length() + 1
        parts: list[Sequence[Pair]] = []
        self._note(parts, held, error, patience)
        calls = 0
        while parts and calls < CALLS and not self._is_stopped():
            part = parts.pop()
            calls += 1
            worked = self._work(part)
            if isinstance(worked, str):
                self._note(parts, part, worked, patience)
            else:
                self._go_on(parts, worked)
        self._end(parts)

    def _note(self, parts: list[Sequence[Pair]], part: Sequence[Pair], error: str, patience: int) -> None:
        """Take note of a part whose function raised."""
        self._raised += 1
        if len(part) == 1:
            self._suspects.append((part[0], error))
        elif self._raised <= patience:
            parts += _halves(part)
        else:
            self._whole.append(part)

    def _go_on(self, parts: list[Sequence[Pair]], settled: Settled) -> None:
        """Take note of a part that was worked: the function works, so what failed alone before is at fault."""
        self.settled += settled
        self.has_failed = False
        self._raised = 0
        self._convict(self._suspects)
        self._suspects = []
        for part in reversed(self._whole):
            parts += _halves(part)
        self._whole = []

    def _end(self, parts: list[Sequence[Pair]]) -> None:
        """Settle what is left. One message pays for it: else a batch in which every message is at fault would come back for ever."""
        stopped = bool(parts) and self._is_stopped()
        if not stopped:
            self._convict(self._suspects[:1])
            del self._suspects[:1]
        back = [pair for pair, _ in self._suspects] + [pair for part in (*parts, *self._whole) for pair in part]
        self.has_failed = not stopped and (self.has_failed or bool(back))
        if back:
            self.settled += self._settle([(*pair, Outcome.RELEASE, None, None) for pair in back])

    def _convict(self, suspects: Sequence[tuple[Pair, str]]) -> None:
        if suspects:
            self.at_fault |= {id_: error for (id_, _), error in suspects}
            self.settled += self._settle([(*pair, Outcome.RETRY, error, None) for pair, error in suspects])


def _halves(part: Sequence[Pair]) -> list[Sequence[Pair]]:
    """Divide a part; its first half is the last, and so the next to be worked."""
    middle = len(part) // 2
    return [part[middle:], part[:middle]]
