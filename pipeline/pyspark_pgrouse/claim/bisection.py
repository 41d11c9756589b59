"""A batch whose function raised an exception.

It is processed again in halves until the messages that cause it are found, each alone.

An error of a batch says nothing about its messages: the function's sink may be down. So a message uses up an attempt
only if it fails alone while the function processes others. If nothing shows whether the messages or the function is at
fault, one message of the batch uses up an attempt. All others are released, and keep their attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pgrouse.client.processing.settlement import SettleKind
from pyspark_pgrouse.claim.claim_ref import ClaimRef
from pyspark_pgrouse.claim.outcome import AttemptOutcome, Row, SettledCounts

# If this many calls have not separated them, most of a batch is at fault, or the function is.
CALLS = 500


class Bisection:
    """One search.

    Args:
        work: processes messages and settles them; returns their results, or the error of the function as text.
        settle: settles messages.
        is_stopped: whether to release the rest instead of continuing.

    Attributes:
        settled: the results of the messages so far.
        at_fault: the errors of those that used up an attempt, by id.
        has_failed: whether the function continued to raise exceptions: messages were released, or it processed none.
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
        # The messages that failed alone since the last success; those that are no longer divided since then; and the
        # errors in a row.
        self._suspects: list[tuple[ClaimRef, str]] = []
        self._undivided: list[Sequence[ClaimRef]] = []
        self._raised = 0

    def run(self, held: Sequence[ClaimRef], error: str) -> None:
        """Search the messages of a batch whose function raised this error."""
        # This many errors lead from the whole batch to one message. After them, only a part that succeeds shows that
        # there is more to find.
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
        """Record a part for which the function raised an exception."""
        self._raised += 1
        if len(part) == 1:
            self._suspects.append((part[0], error))
        elif self._raised <= max_failures:
            parts += _halves(part)
        else:
            self._undivided.append(part)

    def _record_success(self, parts: list[Sequence[ClaimRef]], settled: SettledCounts) -> None:
        """Record a part that was processed: the function works, so messages that failed alone before are at fault."""
        self.settled += settled
        self.has_failed = False
        self._raised = 0
        self._retry_failed(self._suspects)
        self._suspects = []
        for part in reversed(self._undivided):
            parts += _halves(part)
        self._undivided = []

    def _settle_rest(self, parts: list[Sequence[ClaimRef]]) -> None:
        """Settle the rest.

        One message uses up an attempt; otherwise a batch in which every message is at fault would come back without
        end.
        """
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
    """Divide a part. Its first half comes last, and so is processed next."""
    middle = len(part) // 2
    return [part[middle:], part[:middle]]
