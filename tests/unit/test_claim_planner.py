"""The planner: when to claim, how much, and when it is safe to sleep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pgrouse.client.message import Message
from pgrouse.client.worker_client import TurnResult
from pgrouse.worker.claim_planner import (
    DISARM_AFTER_S,
    LIMITED_POLL_S,
    RECHECK_BACKOFF_S,
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
    """A planner whose turns the test answers."""

    def __init__(self, clock: Clock, connections: int = 1) -> None:
        self.clock = clock
        self.capacity = Capacity(["job"], None, 100)
        self.planner = ClaimPlanner(lambda: self.capacity, lambda: POLL_S, clock, connections)

    def next_turn(self, claim_loop: int = 0) -> TurnPlan:
        return self.planner.next_turn(first=claim_loop == 0)

    def answer(self, plan: TurnPlan, *claimed: Message, **got: Any) -> None:
        """Let the turn of this plan come back."""
        self.planner.record_result(
            plan, TurnResult(list(claimed), **got), sent_at=self.clock.now, wake_count=self.planner.wake_count
        )

    def find(self, *claimed: Message, **got: Any) -> TurnPlan:
        """One turn that finds these messages, or nothing."""
        plan = self.next_turn()
        self.answer(plan, *claimed, **got)
        return plan

    def fall_asleep(self, **got: Any) -> None:
        """Go through the whole protocol with nothing in the way."""
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
    def test_it_begins_by_looking(self, rig: Rig) -> None:
        plan = rig.next_turn()

        assert plan.request is not None
        assert (plan.request.topics, plan.request.limit, plan.arm_s) == (["job"], 100, None)

    def test_what_found_something_looks_again_at_once(self, listening: Rig, claimed: Claimed) -> None:
        listening.find(claimed())

        assert listening.planner.state is PlannerState.CLAIMING
        assert listening.next_turn().arm_s is None

    def test_what_found_nothing_arms_together_with_its_next_claim(self, listening: Rig) -> None:
        listening.find()

        assert listening.planner.state is PlannerState.CLAIMING
        plan = listening.next_turn()
        assert plan.arm_s == POLL_S
        assert plan.request is not None

    def test_only_a_claim_that_began_after_all_older_transactions_had_ended_lets_it_sleep(self, listening: Rig) -> None:
        listening.find()

        listening.find(own_xid=OWN_XID, oldest_xid=OWN_XID - 1)
        assert listening.planner.state is PlannerState.ARMING
        listening.clock.forward(RECHECK_BACKOFF_S[0])
        listening.find(oldest_xid=OWN_XID)

        assert listening.planner.state is PlannerState.ASLEEP

    def test_the_claim_that_armed_counts_if_nothing_older_was_open(self, listening: Rig) -> None:
        listening.find()
        listening.find(own_xid=OWN_XID, oldest_xid=OWN_XID + 1)

        assert listening.planner.state is PlannerState.ASLEEP

    def test_while_older_transactions_are_open_it_looks_again_later_and_later(self, listening: Rig) -> None:
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

    def test_each_arming_begins_with_the_shortest_wait(self, listening: Rig) -> None:
        for _ in range(2):
            listening.find()
            listening.find(own_xid=OWN_XID, oldest_xid=1)

            assert listening.planner.wait_s() == pytest.approx(RECHECK_BACKOFF_S[0])
            listening.clock.forward(RECHECK_BACKOFF_S[0])
            listening.find(oldest_xid=1)
            listening.clock.forward(POLL_S)

    def test_what_turns_up_while_it_arms_is_taken_and_the_horizon_still_has_to_be_waited_for(
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

    def test_a_wake_during_a_claim_outdates_its_answer(self, listening: Rig) -> None:
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
    def test_it_wants_nothing_and_waits_for_as_long_as_its_flag_counts(self, asleep: Rig) -> None:
        assert asleep.next_turn() == TurnPlan()
        assert asleep.planner.wait_s() == POLL_S

    def test_the_flag_counts_from_when_it_was_sent_not_from_when_the_answer_came(self, listening: Rig) -> None:
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

    def test_a_wake_makes_it_look_and_it_sleeps_on_under_the_same_flag(self, asleep: Rig) -> None:
        asleep.planner.wake()

        plan = asleep.find(oldest_xid=1)

        assert (plan.request is not None, plan.arm_s) == (True, None)
        assert asleep.planner.state is PlannerState.ASLEEP

    def test_when_its_time_is_over_it_looks_by_itself_and_arms_anew(self, asleep: Rig) -> None:
        asleep.clock.forward(POLL_S)

        first = asleep.find()
        second = asleep.find(own_xid=OWN_XID + 9, oldest_xid=OWN_XID + 9)

        assert first.request is not None
        assert (first.arm_s, second.arm_s) == (None, POLL_S)
        assert asleep.planner.wait_s() == POLL_S

    def test_it_looks_when_the_next_delayed_message_is_due(self, rig: Rig) -> None:
        rig.fall_asleep(next_due_s=0.7)

        assert rig.planner.wait_s() == pytest.approx(0.7)
        rig.clock.forward(0.7)
        assert rig.next_turn().request is not None

    def test_a_message_that_is_due_after_the_poll_is_the_polls_business(self, rig: Rig) -> None:
        rig.fall_asleep(next_due_s=3600)

        assert rig.planner.wait_s() == POLL_S

    def test_what_is_due_and_locked_by_somebody_else_is_looked_for_later_and_later(self, rig: Rig) -> None:
        rig.fall_asleep(next_due_s=-1)

        waited = []
        for _ in range(5):
            waited.append(rig.planner.wait_s())
            rig.clock.forward(waited[-1] or 0)
            rig.find(next_due_s=-1)

        assert waited == pytest.approx([*RECHECK_BACKOFF_S, RECHECK_BACKOFF_S[-1]])

    def test_an_answer_with_an_older_view_does_not_put_off_what_is_due(self, clock: Clock, claimed: Claimed) -> None:
        rig = Rig(clock, connections=2)
        rig.planner.set_listening(True)
        rig.find(*[claimed() for _ in range(100)])
        late = rig.next_turn(claim_loop=1)
        rig.find()
        rig.find(own_xid=OWN_XID, oldest_xid=OWN_XID, next_due_s=0.3)

        rig.answer(late, oldest_xid=OWN_XID)

        assert rig.planner.wait_s() == pytest.approx(0.3)


class TestFlag:
    def test_it_is_taken_down_when_there_has_been_work_for_a_while(self, asleep: Rig, claimed: Claimed) -> None:
        asleep.planner.wake()
        asleep.find(claimed())
        assert not asleep.find(claimed()).disarm

        asleep.clock.forward(DISARM_AFTER_S)

        assert asleep.next_turn().disarm

    def test_a_short_rest_begins_the_while_anew(self, asleep: Rig, claimed: Claimed) -> None:
        asleep.planner.wake()
        asleep.find(claimed())
        asleep.find(oldest_xid=OWN_XID)

        asleep.clock.forward(DISARM_AFTER_S)
        asleep.planner.wake()

        assert not asleep.find(claimed()).disarm
        assert not asleep.next_turn().disarm

    def test_the_first_lane_takes_it_down(self, clock: Clock, claimed: Claimed) -> None:
        rig = Rig(clock, connections=2)
        rig.fall_asleep()
        rig.planner.wake()
        rig.find(*[claimed() for _ in range(100)])
        rig.clock.forward(DISARM_AFTER_S)

        assert not rig.next_turn(claim_loop=1).disarm
        assert rig.next_turn(claim_loop=0).disarm

    def test_once_down_it_takes_the_whole_protocol_to_sleep(self, asleep: Rig, claimed: Claimed) -> None:
        asleep.planner.wake()
        asleep.find(claimed())
        asleep.clock.forward(DISARM_AFTER_S)
        assert asleep.find(claimed()).disarm

        asleep.find(oldest_xid=OWN_XID + 100)
        assert asleep.planner.state is PlannerState.CLAIMING
        assert asleep.next_turn().arm_s == POLL_S

    def test_it_is_taken_down_even_if_there_is_no_room_to_claim(self, asleep: Rig, claimed: Claimed) -> None:
        asleep.planner.wake()
        asleep.find(claimed())
        asleep.clock.forward(DISARM_AFTER_S)
        asleep.capacity = Capacity(["job"], None, 0)

        assert asleep.next_turn() == TurnPlan(disarm=True)

    def test_it_is_not_taken_down_and_put_up_in_one_exchange(self, asleep: Rig, claimed: Claimed) -> None:
        asleep.clock.forward(POLL_S)
        asleep.find(claimed())
        asleep.find()
        asleep.clock.forward(DISARM_AFTER_S)

        plan = asleep.next_turn()

        assert (plan.arm_s, plan.disarm) == (POLL_S, False)


class TestDegraded:
    def test_without_a_listener_it_polls_and_never_arms(self, rig: Rig) -> None:
        for _ in range(3):
            plan = rig.find()
            assert (plan.request is not None, plan.arm_s) == (True, None)
            assert rig.planner.state is PlannerState.ASLEEP
            assert rig.planner.wait_s() == POLL_S
            rig.clock.forward(POLL_S)

    def test_when_the_listener_is_gone_it_looks_at_once_and_takes_its_flag_down(self, asleep: Rig) -> None:
        asleep.planner.set_listening(False)

        assert asleep.find().disarm
        assert asleep.planner.state is PlannerState.ASLEEP
        assert not asleep.planner.armed

    def test_it_does_not_arm_if_the_listener_is_gone_when_it_was_about_to(self, listening: Rig) -> None:
        listening.find()
        listening.planner.set_listening(False)

        assert listening.next_turn().arm_s is None

    def test_a_listener_that_was_gone_for_a_moment_only_means_the_whole_protocol_too(self, asleep: Rig) -> None:
        asleep.planner.set_listening(False)
        asleep.planner.set_listening(True)

        asleep.find(oldest_xid=OWN_XID + 100)

        assert asleep.planner.state is PlannerState.CLAIMING

    def test_when_the_listener_is_back_it_takes_the_whole_protocol_to_sleep(self, asleep: Rig) -> None:
        asleep.planner.set_listening(False)
        asleep.find()
        asleep.planner.set_listening(True)

        asleep.find(oldest_xid=OWN_XID + 100)
        assert asleep.planner.state is PlannerState.CLAIMING
        assert asleep.next_turn().arm_s == POLL_S


class TestRoom:
    def test_a_claim_asks_for_no_more_than_there_is_room_for(self, rig: Rig) -> None:
        rig.capacity = Capacity(["a", "b"], [2, None], 7)

        want = rig.next_turn().request

        assert want is not None
        assert (want.topics, want.slots, want.limit) == (["a", "b"], [2, None], 7)

    @pytest.mark.parametrize("room", [Capacity(["job"], None, 0), Capacity(["job"], None, -3), Capacity([], [], 5)])
    def test_without_room_it_claims_nothing_and_waits_to_be_told(self, rig: Rig, room: Capacity) -> None:
        rig.capacity = room

        assert rig.next_turn() == TurnPlan()
        assert rig.planner.wait_s() is None

    def test_other_lanes_claim_only_while_there_is_plenty(self, clock: Clock, claimed: Claimed) -> None:
        rig = Rig(clock, connections=2)
        assert rig.next_turn(claim_loop=1).request is None

        first = rig.find(*[claimed() for _ in range(100)])
        assert first.request is not None
        assert first.request.limit == 100
        assert rig.next_turn(claim_loop=1).request is not None

        rig.find(claimed())
        assert rig.next_turn(claim_loop=1).request is None

    def test_other_lanes_never_arm(self, clock: Clock, claimed: Claimed) -> None:
        rig = Rig(clock, connections=2)
        rig.planner.set_listening(True)
        rig.find(*[claimed() for _ in range(100)])
        other = rig.next_turn(claim_loop=1)

        rig.find()

        assert other.arm_s is None
        assert rig.next_turn(claim_loop=1) == TurnPlan()
        assert rig.next_turn(claim_loop=0).arm_s == POLL_S

    def test_claims_that_are_on_their_way_together_ask_for_no_more_than_there_is_room_for(
        self, clock: Clock, claimed: Claimed
    ) -> None:
        rig = Rig(clock, connections=2)
        rig.find(*[claimed() for _ in range(100)])
        rig.capacity = Capacity(["job"], None, 5)

        wants = [rig.next_turn(claim_loop=0).request, rig.next_turn(claim_loop=1).request]

        assert [want and want.limit for want in wants] == [3, 2]
        assert rig.next_turn(claim_loop=0).request is None

    def test_the_same_holds_for_each_topic(self, clock: Clock, claimed: Claimed) -> None:
        rig = Rig(clock, connections=2)
        rig.find(*[claimed() for _ in range(100)])
        rig.capacity = Capacity(["narrow", "wide"], [2, None], 50)

        first, second = rig.next_turn(claim_loop=0).request, rig.next_turn(claim_loop=1).request

        assert first is not None
        assert second is not None
        assert (first.topics, first.slots) == (["narrow", "wide"], [2, None])
        assert (second.topics, second.slots) == (["wide"], [None])

    def test_a_claim_that_failed_leaves_its_room_to_the_next(self, rig: Rig) -> None:
        plan = rig.next_turn()
        assert rig.next_turn().request is None

        rig.planner.claim_finished(plan)

        want = rig.next_turn().request
        assert want is not None
        assert want.limit == 100

    def test_the_next_claim_goes_on_where_the_last_one_ended(self, rig: Rig, claimed: Claimed) -> None:
        rig.capacity = Capacity(["a", "b"], None, 100)

        rig.find(claimed("a", channel="x"), claimed("b", channel="y"), claimed("b", channel="z"))

        want = rig.next_turn().request
        assert want is not None
        assert (want.after_topic, want.after_channels) == ("b", '{"a": "x", "b": "z"}')

    def test_batches_are_claimed_beside_everything_else_and_have_room_of_their_own(
        self, rig: Rig, claimed: Claimed
    ) -> None:
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
        rig.capacity = Capacity(["job"], None, 10, Capacity(["bulk"], [500], 500))
        rig.find(*[claimed("job") for _ in range(10)])

        first, second = rig.next_turn(claim_loop=0).request, rig.next_turn(claim_loop=1).request

        assert first is not None
        assert first.batches is not None
        assert (first.limit, first.batches.limit) == (5, 500)
        assert second is not None
        assert (second.limit, second.batches) == (5, None)

    def test_a_full_batch_lets_the_other_lanes_claim_too(self, clock: Clock, claimed: Claimed) -> None:
        rig = Rig(clock, connections=2)
        rig.capacity = Capacity([], [], 10, Capacity(["bulk"], [3], 3))

        rig.find(*[claimed("bulk") for _ in range(3)])

        assert rig.next_turn(claim_loop=1).request is not None

    def test_while_all_places_are_taken_only_batches_are_claimed(self, rig: Rig) -> None:
        rig.capacity = Capacity(["job"], None, 0, Capacity(["bulk"], [500], 500))

        want = rig.next_turn().request

        assert want is not None
        assert [each.topics for each in want.parts] == [["bulk"]]

    def test_it_looks_again_when_what_was_left_out_has_room(self, listening: Rig) -> None:
        listening.capacity = Capacity(["job"], None, 0, Capacity(["bulk"], [500], 500))
        listening.fall_asleep()
        assert listening.next_turn() == TurnPlan()

        listening.capacity = Capacity(["job"], None, 1, Capacity(["bulk"], [500], 500))

        want = listening.next_turn().request
        assert want is not None
        assert want.topics == ["job"]

    def test_what_waits_in_a_batch_has_not_begun(self, rig: Rig) -> None:
        rig.capacity = Capacity(["job"], None, 10, Capacity(["bulk"], [500], 500, start=0))

        want = rig.next_turn().request

        assert want is not None
        assert want.batches is not None
        assert (want.start, want.batches.start) == (None, 0)

    def test_stopped_it_plans_nothing_any_more(self, asleep: Rig) -> None:
        asleep.planner.stop()
        asleep.planner.wake()

        assert asleep.next_turn() == TurnPlan()
        assert asleep.planner.wait_s() is None


class TestSource:
    """Why a claim is made, and how long a sleep was that a publish would have ended."""

    def test_a_notification_wakes_it(self, asleep: Rig) -> None:
        asleep.clock.forward(2.0)

        asleep.planner.on_notification()

        plan = asleep.next_turn()
        assert (plan.reason, plan.slept_s) == (WakeReason.NOTIFY, 2.0)

    def test_nothing_was_heard_for_a_poll_interval(self, asleep: Rig) -> None:
        asleep.clock.forward(POLL_S)

        plan = asleep.next_turn()

        assert (plan.reason, plan.slept_s) == (WakeReason.POLL, POLL_S)

    def test_a_delayed_message_is_due(self, rig: Rig) -> None:
        rig.fall_asleep(next_due_s=1.0)
        rig.clock.forward(1.0)

        assert rig.next_turn().reason is WakeReason.TIMER

    def test_a_limit_may_let_go(self, rig: Rig) -> None:
        rig.fall_asleep(held_back=True)
        rig.clock.forward(LIMITED_POLL_S)

        assert rig.next_turn().reason is WakeReason.TIMER

    def test_what_follows_a_claim_that_found_something_is_busy(self, asleep: Rig, claimed: Claimed) -> None:
        asleep.planner.on_notification()
        asleep.find(claimed())

        plan = asleep.next_turn()

        assert (plan.reason, plan.slept_s) == (WakeReason.BUSY, 0.0)

    def test_a_place_that_became_free_is_no_notification(self, asleep: Rig) -> None:
        asleep.planner.wake()

        assert asleep.next_turn().reason is WakeReason.BUSY

    def test_a_notification_that_comes_while_it_looks_did_not_wake_it(self, listening: Rig) -> None:
        listening.planner.on_notification()

        assert listening.next_turn().reason is WakeReason.BUSY

    def test_a_daemon_that_does_not_hear_has_not_slept_as_far_as_notifications_go(self, rig: Rig) -> None:
        rig.find()
        assert rig.planner.state is PlannerState.ASLEEP
        rig.clock.forward(POLL_S)

        plan = rig.next_turn()

        assert (plan.reason, plan.slept_s) == (WakeReason.POLL, 0.0)

    def test_a_look_without_room_is_owed_to_nothing_when_room_comes(self, asleep: Rig) -> None:
        full, asleep.capacity = asleep.capacity, Capacity(["job"], None, 0)
        asleep.planner.on_notification()
        assert asleep.next_turn().request is None
        asleep.capacity = full

        assert asleep.next_turn().reason is WakeReason.BUSY
