"""A batch whose function raised: it is worked again in halves until those messages are found that make it raise, each of them alone.

An error of a batch says nothing about its messages: the function's sink may be down. So an attempt is used up only by a message that fails
alone while the function works others, and, if nothing shows which of the two it is, by one message of the batch. All others are given
back with their attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pgrouse.client.settlement import SettleKind
from pyspark_pgrouse.claim.claim_ref import ClaimRef
from pyspark_pgrouse.claim.outcome import AttemptOutcome, Row, SettledCounts

# If so many calls have not separated them, most of a batch is at fault, or the function is.
CALLS = 500


class Bisection:
    """One search.

    Args:
        work: works some messages and settles them; returns what became of them, or the error of the function as text.
        settle: settles messages.
        is_stopped: whether to give back what is left instead of going on.

    Attributes:
        settled: what became of the messages so far.
        at_fault: the errors of those that used up an attempt, by id.
        has_failed: whether the function went on to raise: messages were given back, or it worked none.
    """

    def __init__(
        self,
        work: Callable[[Sequence[ClaimRef]], SettledCounts | str],
        settle: Callable[[Sequence[Row]], SettledCounts],
        is_stopped: Callable[[], bool],
    ) -> None:
        self.settled = SettledCounts()
        self.at_fault: dict[int, str] = {}
        self.has_failed = True
        self._work, self._settle, self._is_stopped = work, settle, is_stopped
        # Failed alone since the function worked last; not divided any more since then; and how often it has raised in a row.
        self._suspects: list[tuple[ClaimRef, str]] = []
        self._undivided: list[Sequence[ClaimRef]] = []
        self._raised = 0

    def run(self, held: Sequence[ClaimRef], error: str) -> None:
        """Search the messages of a batch whose function raised this."""
        # So many errors lead from the whole batch to one message. After them, only a part that succeeds shows that there is more to find.
        max_failures = len(held).bit_length() + 1
        parts: list[Sequence[ClaimRef]] = []
        self._record_failure(parts, held, error, max_failures)
        calls = 0
        while parts and calls < CALLS and not self._is_stopped():
            part = parts.pop()
            calls += 1
            worked = self._work(part)
            if isinstance(worked, str):
                self._record_failure(parts, part, worked, max_failures)
            else:
                self._record_success(parts, worked)
        self._settle_rest(parts)

    def _record_failure(
        self, parts: list[Sequence[ClaimRef]], part: Sequence[ClaimRef], error: str, max_failures: int
    ) -> None:
        """Take note of a part whose function raised."""
        self._raised += 1
        if len(part) == 1:
            self._suspects.append((part[0], error))
        elif self._raised <= max_failures:
            parts += _halves(part)
        else:
            self._undivided.append(part)

    def _record_success(self, parts: list[Sequence[ClaimRef]], settled: SettledCounts) -> None:
        """Take note of a part that was worked: the function works, so what failed alone before is at fault."""
        self.settled += settled
        self.has_failed = False
        self._raised = 0
        self._retry_failed(self._suspects)
        self._suspects = []
        for part in reversed(self._undivided):
            parts += _halves(part)
        self._undivided = []

    def _settle_rest(self, parts: list[Sequence[ClaimRef]]) -> None:
        """Settle what is left. One message pays for it: else a batch in which every message is at fault would come back for ever."""
        stopped = bool(parts) and self._is_stopped()
        if not stopped:
            self._retry_failed(self._suspects[:1])
            del self._suspects[:1]
        back = [ref for ref, _ in self._suspects] + [ref for part in (*parts, *self._undivided) for ref in part]
        self.has_failed = not stopped and (self.has_failed or bool(back))
        if back:
            self.settled += self._settle([(*ref, AttemptOutcome(SettleKind.RELEASE)) for ref in back])

    def _retry_failed(self, suspects: Sequence[tuple[ClaimRef, str]]) -> None:
        if suspects:
            self.at_fault |= {id_: error for (id_, _), error in suspects}
            self.settled += self._settle([(*ref, AttemptOutcome(SettleKind.RETRY, error)) for ref, error in suspects])


def _halves(part: Sequence[ClaimRef]) -> list[Sequence[ClaimRef]]:
    """Divide a part; its first half is the last, and so the next to be worked."""
    middle = len(part) // 2
    return [part[middle:], part[:middle]]
