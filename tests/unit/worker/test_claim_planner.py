"""The planner: when to claim, how much, and when it is safe to sleep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pgrouse.client.message import Message
from pgrouse.client.processing.worker_client import TurnResult
from pgrouse.worker.loop.claim_planner import (
    DISARM_AFTER_S,
    LIMITED_POLL_S,
    RECHECK_BACKOFF_S,
    SETTLE_FOR_FIRST_S,
    STEADY_CLAIM_S,
    Capacity,
    ClaimPlanner,
    PlannerState,
    TurnPlan,
    WakeReason,
)
from tests.unit.conftest import Clock

Claimed = Callable[..., Message]

POLL_S = 5.0
OWN_XID = 500


class Rig:
    """A planner whose claims the test answers."""

    def __init__(self, clock: Clock, connections: int = 1) -> None:
        self.clock = clock
        self.capacity = Capacity(["job"], None, 100)
        self.planner = ClaimPlanner(lambda: self.capacity, lambda: POLL_S, clock, connections)

    def next_turn(self, claim_loop: int = 0) -> TurnPlan:
        return self.planner.next_turn(first=claim_loop == 0)

    def answer(self, plan: TurnPlan, *claimed: Message, **got: Any) -> None:
        """Answer the claims of this plan."""
        self.planner.record_result(
            plan, TurnResult(list(claimed), **got), sent_at=self.clock.now, wake_count=self.planner.wake_count
        )

    def find(self, *claimed: Message, **got: Any) -> TurnPlan:
        """One claim that finds these messages, or nothing."""
        plan = self.next_turn()
        self.answer(plan, *claimed, **got)
        return plan

    def fall_asleep(self, **got: Any) -> None:
        """Run the whole protocol without any obstacle."""
        self.planner.set_listening(True)
        self.find()
        self.find(own_xid=OWN_XID, oldest_xid=OWN_XID, **got)
        assert self.planner.state is PlannerState.ASLEEP


@pytest.fixture
def rig(clock: Clock) -> Rig:
    return Rig(clock)


@pytest.fixture
def listening(rig: Rig) -> Rig:
    rig.planner.set_listening(True)
    return rig


@pytest.fixture
def asleep(rig: Rig) -> Rig:
    rig.fall_asleep()
    return rig


class TestFallingAsleep:
    def test_a_claim_that_found_messages_is_followed_by_another_at_once(self, listening: Rig, claimed: Claimed) -> None:
        listening.find(claimed())

        assert listening.planner.state is PlannerState.CLAIMING
        assert listening.next_turn().arm_s is None

    def test_a_claim_that_found_nothing_arms_with_the_next_claim(self, listening: Rig) -> None:
        listening.find()

        assert listening.planner.state is PlannerState.CLAIMING
        plan = listening.next_turn()
        assert plan.arm_s == POLL_S
        assert plan.request is not None

    def test_only_a_claim_begun_after_all_older_transactions_ended_lets_the_worker_sleep(self, listening: Rig) -> None:
        listening.find()

        listening.find(own_xid=OWN_XID, oldest_xid=OWN_XID - 1)
        assert listening.planner.state is PlannerState.ARMING
        listening.clock.forward(RECHECK_BACKOFF_S[0])
        listening.find(oldest_xid=OWN_XID)

        assert listening.planner.state is PlannerState.ASLEEP

    def test_claims_back_off_while_older_transactions_are_open(self, listening: Rig) -> None:
        listening.find()
        listening.find(own_xid=OWN_XID, oldest_xid=1)

        waited = []
        for _ in range(6):
            waited.append(listening.planner.wait_s())
            assert listening.next_turn().request is None, "it is not time yet"
            listening.clock.forward(waited[-1] or 0)
            plan = listening.find(oldest_xid=1)
            assert plan.request is not None
            assert plan.arm_s is None, "the flag is up already"

        assert waited == pytest.approx([*RECHECK_BACKOFF_S, RECHECK_BACKOFF_S[-1], RECHECK_BACKOFF_S[-1]])

    def test_messages_found_while_arming_are_taken_and_the_horizon_is_still_awaited(
        self, listening: Rig, claimed: Claimed
    ) -> None:
        listening.find()
        listening.find(own_xid=OWN_XID, oldest_xid=1)
        listening.clock.forward(RECHECK_BACKOFF_S[0])

        listening.find(claimed(), oldest_xid=1)
        assert listening.planner.state is PlannerState.CLAIMING
        listening.find(oldest_xid=1)
        assert listening.planner.state is PlannerState.ARMING

    def test_a_failed_arming_is_repeated(self, listening: Rig) -> None:
        listening.find()

        listening.planner.claim_finished(listening.next_turn())

        assert listening.next_turn().arm_s == POLL_S

    def test_a_notification_during_a_claim_outdates_its_answer(self, listening: Rig) -> None:
        listening.find()
        plan, wakes = listening.next_turn(), listening.planner.wake_count

        listening.planner.wake()
        listening.planner.record_result(
            plan, TurnResult(own_xid=OWN_XID, oldest_xid=OWN_XID), sent_at=listening.clock.now, wake_count=wakes
        )

        assert listening.planner.state is PlannerState.CLAIMING
        listening.find(oldest_xid=OWN_XID)
        assert listening.planner.state is PlannerState.ASLEEP


class TestAsleep:
    def test_the_flag_is_valid_from_the_sending_of_the_request(self, listening: Rig) -> None:
        listening.find()
        plan, began = listening.next_turn(), listening.clock.now
        listening.clock.forward(2)
        listening.planner.record_result(
            plan,
            TurnResult(own_xid=OWN_XID, oldest_xid=OWN_XID),
            sent_at=began,
            wake_count=listening.planner.wake_count,
        )

        assert listening.planner.wait_s() == POLL_S - 2

    def test_a_notification_causes_a_claim_and_the_flag_remains(self, asleep: Rig) -> None:
        asleep.planner.wake()

        plan = asleep.find(oldest_xid=1)

        assert (plan.request is not None, plan.arm_s) == (True, None)
        assert asleep.planner.state is PlannerState.ASLEEP

    def test_a_sleep_that_ends_causes_a_claim_and_a_new_flag(self, asleep: Rig) -> None:
        asleep.clock.forward(POLL_S)

        first = asleep.find()
        second = asleep.find(own_xid=OWN_XID + 9, oldest_xid=OWN_XID + 9)

        assert first.request is not None
        assert (first.arm_s, second.arm_s) == (None, POLL_S)
        assert asleep.planner.wait_s() == POLL_S

    def test_an_answer_with_an_older_snapshot_does_not_postpone_a_due_message(
        self, clock: Clock, claimed: Claimed
    ) -> None:
        rig = Rig(clock, connections=2)
        rig.planner.set_listening(True)
        rig.find(*[claimed() for _ in range(100)])
        late = rig.next_turn(claim_loop=1)
        clock.forward(1)
        rig.find()
        rig.find(own_xid=OWN_XID, oldest_xid=OWN_XID, next_due_s=0.3)

        rig.answer(late, oldest_xid=OWN_XID)

        assert rig.planner.wait_s() == pytest.approx(0.3)


class TestSteady:
    """Messages arrive so steadily that notifications would cost more than claims."""

    @pytest.fixture
    def steady(self, asleep: Rig, claimed: Claimed) -> Rig:
        asleep.planner.on_notification()
        asleep.find(*(claimed() for _ in range(30)))
        return asleep

    def test_the_next_claim_begins_some_milliseconds_after_the_last(self, steady: Rig) -> None:
        assert steady.planner.state is PlannerState.STEADY
        assert steady.next_turn().request is None
        assert steady.planner.wait_s() == pytest.approx(STEADY_CLAIM_S)

        steady.clock.forward(STEADY_CLAIM_S)

        assert steady.next_turn().request is not None

    def test_what_ends_until_then_waits_for_the_claim(self, steady: Rig) -> None:
        assert steady.planner.pause_s(first=True) == pytest.approx(STEADY_CLAIM_S)

        steady.clock.forward(STEADY_CLAIM_S)

        assert steady.planner.pause_s(first=True) == 0

    def test_the_other_claim_loops_settle_only_if_the_first_one_is_late(self, steady: Rig) -> None:
        steady.clock.forward(STEADY_CLAIM_S)
        assert steady.planner.pause_s(first=False) == pytest.approx(SETTLE_FOR_FIRST_S)

        steady.clock.forward(SETTLE_FOR_FIRST_S)

        assert steady.planner.pause_s(first=False) == 0

    def test_a_notification_does_not_hasten_the_claim(self, steady: Rig) -> None:
        steady.planner.on_notification()

        assert steady.next_turn().request is None
        steady.clock.forward(STEADY_CLAIM_S)
        assert steady.next_turn().request is not None

    def test_when_messages_stay_away_the_planner_falls_asleep(self, steady: Rig) -> None:
        claims = 0
        while steady.planner.state is not PlannerState.ASLEEP and claims < 50:
            steady.clock.forward(STEADY_CLAIM_S)
            steady.find(own_xid=OWN_XID, oldest_xid=OWN_XID)
            claims += 1

        assert steady.planner.state is PlannerState.ASLEEP

    def test_a_steady_planner_clears_its_flag(self, steady: Rig, claimed: Claimed) -> None:
        cleared = False
        for _ in range(round(2 * DISARM_AFTER_S / STEADY_CLAIM_S)):
            steady.clock.forward(STEADY_CLAIM_S)
            cleared |= steady.find(claimed()).disarm

        assert cleared

    def test_a_full_claim_is_followed_by_another_at_once(self, asleep: Rig, claimed: Claimed) -> None:
        asleep.capacity = Capacity(["job"], None, 30)
        asleep.planner.on_notification()
        asleep.find(*(claimed() for _ in range(30)))

        assert asleep.next_turn().request is not None

    def test_so_is_a_claim_that_filled_one_topic(self, asleep: Rig, claimed: Claimed) -> None:
        asleep.capacity = Capacity(["job", "other"], [30, None], 100)
        asleep.planner.on_notification()
        asleep.find(*(claimed() for _ in range(30)))

        assert asleep.next_turn().request is not None

    def test_what_a_limit_holds_back_is_not_waited_for(self, asleep: Rig, claimed: Claimed) -> None:
        asleep.planner.on_notification()
        asleep.find(*(claimed() for _ in range(30)), held_back=True)

        assert asleep.planner.state is PlannerState.CLAIMING

    def test_a_stopped_planner_lets_everything_be_settled_at_once(self, steady: Rig) -> None:
        steady.planner.stop()

        assert steady.planner.pause_s(first=True) == 0


class TestFlag:
    def test_the_flag_is_cleared_after_a_period_of_work(self, asleep: Rig, claimed: Claimed) -> None:
        asleep.planner.wake()
        asleep.find(claimed())
        assert not asleep.find(claimed()).disarm

        asleep.clock.forward(DISARM_AFTER_S)

        assert asleep.next_turn().disarm

    def test_the_first_claim_loop_clears_the_flag(self, clock: Clock, claimed: Claimed) -> None:
        rig = Rig(clock, connections=2)
        rig.fall_asleep()
        rig.planner.wake()
        rig.find(*[claimed() for _ in range(100)])
        rig.clock.forward(DISARM_AFTER_S)

        assert not rig.next_turn(claim_loop=1).disarm
        assert rig.next_turn(claim_loop=0).disarm

    def test_a_cleared_flag_requires_the_whole_protocol_before_sleep(self, asleep: Rig, claimed: Claimed) -> None:
        asleep.planner.wake()
        asleep.find(claimed())
        asleep.clock.forward(DISARM_AFTER_S)
        assert asleep.find(claimed()).disarm

        asleep.find(oldest_xid=OWN_XID + 100)
        assert asleep.planner.state is PlannerState.CLAIMING
        assert asleep.next_turn().arm_s == POLL_S

    def test_the_flag_is_cleared_even_without_room_to_claim(self, asleep: Rig, claimed: Claimed) -> None:
        asleep.planner.wake()
        asleep.find(claimed())
        asleep.clock.forward(DISARM_AFTER_S)
        asleep.capacity = Capacity(["job"], None, 0)

        assert asleep.next_turn() == TurnPlan(disarm=True)

    def test_the_flag_is_not_cleared_and_set_in_one_request(self, asleep: Rig, claimed: Claimed) -> None:
        asleep.clock.forward(POLL_S)
        asleep.find(claimed())
        asleep.find()
        asleep.clock.forward(DISARM_AFTER_S)

        plan = asleep.next_turn()

        assert (plan.arm_s, plan.disarm) == (POLL_S, False)


class TestDegraded:
    def test_a_planner_without_a_listener_polls_and_never_arms(self, rig: Rig) -> None:
        for _ in range(3):
            plan = rig.find()
            assert (plan.request is not None, plan.arm_s) == (True, None)
            assert rig.planner.state is PlannerState.ASLEEP
            assert rig.planner.wait_s() == POLL_S
            rig.clock.forward(POLL_S)

    def test_the_loss_of_the_listener_causes_a_claim_and_clears_the_flag(self, asleep: Rig) -> None:
        asleep.planner.set_listening(False)

        assert asleep.find().disarm
        assert asleep.planner.state is PlannerState.ASLEEP
        assert not asleep.planner.armed

    def test_the_loss_of_the_listener_prevents_arming(self, listening: Rig) -> None:
        listening.find()
        listening.planner.set_listening(False)

        assert listening.next_turn().arm_s is None

    def test_the_return_of_the_listener_requires_the_whole_protocol(self, asleep: Rig) -> None:
        asleep.planner.set_listening(False)
        asleep.find()
        asleep.planner.set_listening(True)

        asleep.find(oldest_xid=OWN_XID + 100)
        assert asleep.planner.state is PlannerState.CLAIMING
        assert asleep.next_turn().arm_s == POLL_S


class TestRoom:
    def test_a_claim_requests_no_more_than_the_room(self, rig: Rig) -> None:
        rig.capacity = Capacity(["a", "b"], [2, None], 7)

        want = rig.next_turn().request

        assert want is not None
        assert (want.topics, want.slots, want.limit) == (["a", "b"], [2, None], 7)

    @pytest.mark.parametrize("room", [Capacity(["job"], None, 0), Capacity(["job"], None, -3), Capacity([], [], 5)])
    def test_a_planner_without_room_waits_for_a_free_slot(self, rig: Rig, room: Capacity) -> None:
        rig.capacity = room

        assert rig.next_turn() == TurnPlan()
        assert rig.planner.wait_s() is None

    def test_other_claim_loops_claim_only_while_many_messages_wait(self, clock: Clock, claimed: Claimed) -> None:
        rig = Rig(clock, connections=2)
        assert rig.next_turn(claim_loop=1).request is None

        first = rig.find(*[claimed() for _ in range(100)])
        assert first.request is not None
        assert first.request.limit == 100
        assert rig.next_turn(claim_loop=1).request is not None

        rig.find(claimed())
        assert rig.next_turn(claim_loop=1).request is None

    def test_other_claim_loops_never_arm(self, clock: Clock, claimed: Claimed) -> None:
        rig = Rig(clock, connections=2)
        rig.planner.set_listening(True)
        rig.find(*[claimed() for _ in range(100)])
        other = rig.next_turn(claim_loop=1)

        clock.forward(1)
        rig.find()

        assert other.arm_s is None
        assert rig.next_turn(claim_loop=1) == TurnPlan()
        assert rig.next_turn(claim_loop=0).arm_s == POLL_S

    def test_concurrent_claims_request_no_more_than_the_room(self, clock: Clock, claimed: Claimed) -> None:
        rig = Rig(clock, connections=2)
        rig.find(*[claimed() for _ in range(100)])
        rig.capacity = Capacity(["job"], None, 201)

        wants = [rig.next_turn(claim_loop=0).request, rig.next_turn(claim_loop=1).request]

        assert [want and want.limit for want in wants] == [101, 100]
        assert rig.next_turn(claim_loop=0).request is None

    def test_concurrent_claims_request_no_more_than_the_room_of_each_topic(
        self, clock: Clock, claimed: Claimed
    ) -> None:
        rig = Rig(clock, connections=2)
        rig.find(*[claimed() for _ in range(100)])
        rig.capacity = Capacity(["narrow", "wide"], [2, None], 100)

        first, second = rig.next_turn(claim_loop=0).request, rig.next_turn(claim_loop=1).request

        assert first is not None
        assert second is not None
        assert (first.topics, first.slots) == (["narrow", "wide"], [2, None])
        assert (second.topics, second.slots) == (["wide"], [None])

    def test_a_failed_claim_returns_its_room(self, rig: Rig) -> None:
        plan = rig.next_turn()
        assert rig.next_turn().request is None

        rig.planner.claim_finished(plan)

        want = rig.next_turn().request
        assert want is not None
        assert want.limit == 100

    def test_the_next_claim_continues_the_rotation_of_the_last(self, rig: Rig, claimed: Claimed) -> None:
        rig.capacity = Capacity(["a", "b"], None, 100)

        rig.find(claimed("a", channel="x"), claimed("b", channel="y"), claimed("b", channel="z"))

        want = rig.next_turn().request
        assert want is not None
        assert (want.after_topic, want.after_channels) == ("b", '{"a": "x", "b": "z"}')

    def test_batches_are_claimed_with_room_of_their_own(self, rig: Rig, claimed: Claimed) -> None:
        rig.capacity = Capacity(["job"], None, 10, Capacity(["bulk", "heap"], [500, 100], 600))

        rig.find(claimed("job"), claimed("bulk"))

        want = rig.next_turn().request
        assert want is not None
        assert want.batches is not None
        assert (want.topics, want.limit) == (["job"], 10)
        assert (want.batches.topics, want.batches.slots, want.batches.limit) == (["bulk", "heap"], [500, 100], 600)
        assert want.batches.after_topic == "bulk"

    def test_a_batch_is_never_claimed_in_two_halves(self, clock: Clock, claimed: Claimed) -> None:
        rig = Rig(clock, connections=2)
        rig.capacity = Capacity(["job"], None, 200, Capacity(["bulk"], [500], 500))
        rig.find(*[claimed("job") for _ in range(200)])

        first, second = rig.next_turn(claim_loop=0).request, rig.next_turn(claim_loop=1).request

        assert first is not None
        assert first.batches is not None
        assert (first.limit, first.batches.limit) == (100, 500)
        assert second is not None
        assert (second.limit, second.batches) == (100, None)

    def test_batches_that_are_claimed_ahead_are_shared_as_whole_claims(self, clock: Clock, claimed: Claimed) -> None:
        rig = Rig(clock, connections=2)
        rig.capacity = Capacity([], [], 10, Capacity(["bulk"], [1700], 1700, prefetch=[1200], per_claim=1000))
        rig.find(*[claimed("bulk") for _ in range(1700)])

        first, second = rig.next_turn(claim_loop=0).request, rig.next_turn(claim_loop=1).request

        assert first is not None
        assert first.batches is not None
        assert (first.batches.slots, first.batches.limit, first.batches.prefetch) == ([1000], 1000, [500])
        assert second is not None
        assert second.batches is not None
        # The slots that are free are asked for by the first claim.
        assert (second.batches.slots, second.batches.limit, second.batches.prefetch) == ([700], 700, [700])

    def test_a_full_batch_lets_the_other_claim_loops_claim(self, clock: Clock, claimed: Claimed) -> None:
        rig = Rig(clock, connections=2)
        rig.capacity = Capacity([], [], 10, Capacity(["bulk"], [3], 3))

        rig.find(*[claimed("bulk") for _ in range(3)])

        assert rig.next_turn(claim_loop=1).request is not None

    def test_only_batches_are_claimed_while_all_slots_are_taken(self, rig: Rig) -> None:
        rig.capacity = Capacity(["job"], None, 0, Capacity(["bulk"], [500], 500))

        want = rig.next_turn().request

        assert want is not None
        assert [each.topics for each in want.parts] == [["bulk"]]

    def test_a_planner_claims_again_when_an_excluded_topic_has_room(self, listening: Rig) -> None:
        listening.capacity = Capacity(["job"], None, 0, Capacity(["bulk"], [500], 500))
        listening.fall_asleep()
        assert listening.next_turn() == TurnPlan()

        listening.capacity = Capacity(["job"], None, 1, Capacity(["bulk"], [500], 500))

        want = listening.next_turn().request
        assert want is not None
        assert want.topics == ["job"]

    def test_a_stopped_planner_plans_nothing(self, asleep: Rig) -> None:
        asleep.planner.stop()
        asleep.planner.wake()

        assert asleep.next_turn() == TurnPlan()
        assert asleep.planner.wait_s() is None


class TestSource:
    """The cause of a claim, and the length of a sleep that a publish would have ended."""

    def test_a_claim_after_a_notification_has_the_reason_notification(self, asleep: Rig) -> None:
        asleep.clock.forward(2.0)

        asleep.planner.on_notification()

        plan = asleep.next_turn()
        assert (plan.reason, plan.slept_s) == (WakeReason.NOTIFY, 2.0)

    def test_a_claim_after_the_poll_interval_has_the_reason_poll(self, asleep: Rig) -> None:
        asleep.clock.forward(POLL_S)

        plan = asleep.next_turn()

        assert (plan.reason, plan.slept_s) == (WakeReason.POLL, POLL_S)

    def test_a_claim_of_a_limited_topic_after_its_interval_has_the_reason_timer(self, rig: Rig) -> None:
        rig.fall_asleep(held_back=True)
        rig.clock.forward(LIMITED_POLL_S)

        assert rig.next_turn().reason is WakeReason.TIMER

    def test_a_claim_after_a_successful_one_has_the_reason_busy(self, asleep: Rig, claimed: Claimed) -> None:
        asleep.planner.on_notification()
        asleep.find(claimed())

        plan = asleep.next_turn()

        assert (plan.reason, plan.slept_s) == (WakeReason.BUSY, 0.0)

    def test_a_notification_during_a_claim_is_not_its_cause(self, listening: Rig) -> None:
        listening.planner.on_notification()

        assert listening.next_turn().reason is WakeReason.BUSY

    def test_a_claim_without_a_listener_reports_no_sleep(self, rig: Rig) -> None:
        rig.find()
        assert rig.planner.state is PlannerState.ASLEEP
        rig.clock.forward(POLL_S)

        plan = rig.next_turn()

        assert (plan.reason, plan.slept_s) == (WakeReason.POLL, 0.0)


class TestTheMessageOfANotification:
    """A notification that ends a sleep names the message that the next claim takes."""

    def test_the_claim_that_it_wakes_asks_for_the_message_once(self, asleep: Rig, claimed: Claimed) -> None:
        asleep.planner.on_notification("17")

        woken = asleep.find(claimed())
        next_one = asleep.next_turn()

        assert woken.request is not None
        assert woken.request.message_id == 17
        assert next_one.request is not None
        assert next_one.request.message_id is None

    @pytest.mark.parametrize("payload", ["", "orders", "-5", "\u0663", "9" * 19])
    def test_anything_else_than_an_id_only_wakes(self, asleep: Rig, payload: str) -> None:
        asleep.planner.on_notification(payload)

        plan = asleep.next_turn()

        assert plan.request is not None
        assert plan.request.message_id is None

    def test_after_two_notifications_the_claim_takes_what_is_there(self, asleep: Rig) -> None:
        asleep.planner.on_notification("17")
        asleep.planner.on_notification("18")

        plan = asleep.next_turn()

        assert plan.request is not None
        assert plan.request.message_id is None
