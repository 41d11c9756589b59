"""The claimer: when to claim, how much, and when it is safe to sleep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pgrouse.worker.claim_planner import BUSY_S, HELD_BACK_S, HORIZON_S, Claimer, Plan, Room, Source, State, jittered
from pgrouse.client.message import Message
from pgrouse.client.worker_client import Exchange
from tests.unit.conftest import Clock

Claimed = Callable[..., Message]

POLL_S = 5.0
OWN_XID = 500


class Rig:
    """A claimer whose exchanges the test answers."""

    def __init__(self, clock: Clock, lanes: int = 1) -> None:
        self.clock = clock
        self.room = Room(["job"], None, 100)
        self.claimer = Claimer(lambda: self.room, lambda: POLL_S, clock, lanes)

    def plan(self, lane: int = 0) -> Plan:
        return self.claimer.plan(first=lane == 0)

    def answer(self, plan: Plan, *claimed: Message, **got: Any) -> None:
        """Let the exchange of this plan come back."""
        self.claimer.heard(plan, Exchange(list(claimed), **got), began=self.clock.now, wakes=self.claimer.wakes)

    def find(self, *claimed: Message, **got: Any) -> Plan:
        """One exchange that finds these messages, or nothing."""
        plan = self.plan()
        self.answer(plan, *claimed, **got)
        return plan

    def fall_asleep(self, **got: Any) -> None:
        """Go through the whole protocol with nothing in the way."""
        self.claimer.listen(True)
        self.find()
        self.find(own_xid=OWN_XID, oldest_xid=OWN_XID, **got)
        assert self.claimer.state is State.ASLEEP


@pytest.fixture
def rig(clock: Clock) -> Rig:
    return Rig(clock)


@pytest.fixture
def listening(rig: Rig) -> Rig:
    rig.claimer.listen(True)
    return rig


@pytest.fixture
def asleep(rig: Rig) -> Rig:
    rig.fall_asleep()
    return rig


class TestFallingAsleep:
    def test_it_begins_by_looking(self, rig: Rig) -> None:
        plan = rig.plan()

        assert plan.want is not None
        assert (plan.want.topics, plan.want.limit, plan.arm_s) == (["job"], 100, None)

    def test_what_found_something_looks_again_at_once(self, listening: Rig, claimed: Claimed) -> None:
        listening.find(claimed())

        assert listening.claimer.state is State.LOOKING
        assert listening.plan().arm_s is None

    def test_what_found_nothing_arms_together_with_its_next_claim(self, listening: Rig) -> None:
        listening.find()

        assert listening.claimer.state is State.LOOKING
        plan = listening.plan()
        assert plan.arm_s == POLL_S
        assert plan.want is not None

    def test_only_a_claim_that_began_after_all_older_transactions_had_ended_lets_it_sleep(self, listening: Rig) -> None:
        listening.find()

        listening.find(own_xid=OWN_XID, oldest_xid=OWN_XID - 1)
        assert listening.claimer.state is State.ARMING
        listening.clock.forward(HORIZON_S[0])
        listening.find(oldest_xid=OWN_XID)

        assert listening.claimer.state is State.ASLEEP

    def test_the_claim_that_armed_counts_if_nothing_older_was_open(self, listening: Rig) -> None:
        listening.find()
        listening.find(own_xid=OWN_XID, oldest_xid=OWN_XID + 1)

        assert listening.claimer.state is State.ASLEEP

    def test_while_older_transactions_are_open_it_looks_again_later_and_later(self, listening: Rig) -> None:
        listening.find()
        listening.find(own_xid=OWN_XID, oldest_xid=1)

        waited = []
        for _ in range(6):
            waited.append(listening.claimer.wait_s())
            assert listening.plan().want is None, "it is not time yet"
            listening.clock.forward(waited[-1] or 0)
            plan = listening.find(oldest_xid=1)
            assert plan.want is not None
            assert plan.arm_s is None, "the flag is up already"

        assert waited == pytest.approx([*HORIZON_S, HORIZON_S[-1], HORIZON_S[-1]])

    def test_each_arming_begins_with_the_shortest_wait(self, listening: Rig) -> None:
        for _ in range(2):
            listening.find()
            listening.find(own_xid=OWN_XID, oldest_xid=1)

            assert listening.claimer.wait_s() == pytest.approx(HORIZON_S[0])
            listening.clock.forward(HORIZON_S[0])
            listening.find(oldest_xid=1)
            listening.clock.forward(POLL_S)

    def test_what_turns_up_while_it_arms_is_taken_and_the_horizon_still_has_to_be_waited_for(
        self, listening: Rig, claimed: Claimed
    ) -> None:
        listening.find()
        listening.find(own_xid=OWN_XID, oldest_xid=1)
        listening.clock.forward(HORIZON_S[0])

        listening.find(claimed(), oldest_xid=1)
        assert listening.claimer.state is State.LOOKING
        listening.find(oldest_xid=1)
        assert listening.claimer.state is State.ARMING

    def test_a_failed_arming_is_repeated(self, listening: Rig) -> None:
        listening.find()

        listening.claimer.ended(listening.plan())

        assert listening.plan().arm_s == POLL_S

    def test_a_wake_during_a_claim_outdates_its_answer(self, listening: Rig) -> None:
        listening.find()
        plan, wakes = listening.plan(), listening.claimer.wakes

        listening.claimer.wake()
        listening.claimer.heard(
            plan, Exchange(own_xid=OWN_XID, oldest_xid=OWN_XID), began=listening.clock.now, wakes=wakes
        )

        assert listening.claimer.state is State.LOOKING
        listening.find(oldest_xid=OWN_XID)
        assert listening.claimer.state is State.ASLEEP


class TestAsleep:
    def test_it_wants_nothing_and_waits_for_as_long_as_its_flag_counts(self, asleep: Rig) -> None:
        assert asleep.plan() == Plan()
        assert asleep.claimer.wait_s() == POLL_S

    def test_the_flag_counts_from_when_it_was_sent_not_from_when_the_answer_came(self, listening: Rig) -> None:
        listening.find()
        plan, began = listening.plan(), listening.clock.now
        listening.clock.forward(2)
        listening.claimer.heard(
            plan, Exchange(own_xid=OWN_XID, oldest_xid=OWN_XID), began=began, wakes=listening.claimer.wakes
        )

        assert listening.claimer.wait_s() == POLL_S - 2

    def test_a_wake_makes_it_look_and_it_sleeps_on_under_the_same_flag(self, asleep: Rig) -> None:
        asleep.claimer.wake()

        plan = asleep.find(oldest_xid=1)

        assert (plan.want is not None, plan.arm_s) == (True, None)
        assert asleep.claimer.state is State.ASLEEP

    def test_when_its_time_is_over_it_looks_by_itself_and_arms_anew(self, asleep: Rig) -> None:
        asleep.clock.forward(POLL_S)

        first = asleep.find()
        second = asleep.find(own_xid=OWN_XID + 9, oldest_xid=OWN_XID + 9)

        assert first.want is not None
        assert (first.arm_s, second.arm_s) == (None, POLL_S)
        assert asleep.claimer.wait_s() == POLL_S

    def test_it_looks_when_the_next_delayed_message_is_due(self, rig: Rig) -> None:
        rig.fall_asleep(next_due_s=0.7)

        assert rig.claimer.wait_s() == pytest.approx(0.7)
        rig.clock.forward(0.7)
        assert rig.plan().want is not None

    def test_a_message_that_is_due_after_the_poll_is_the_polls_business(self, rig: Rig) -> None:
        rig.fall_asleep(next_due_s=3600)

        assert rig.claimer.wait_s() == POLL_S

    def test_what_is_due_and_locked_by_somebody_else_is_looked_for_later_and_later(self, rig: Rig) -> None:
        rig.fall_asleep(next_due_s=-1)

        waited = []
        for _ in range(5):
            waited.append(rig.claimer.wait_s())
            rig.clock.forward(waited[-1] or 0)
            rig.find(next_due_s=-1)

        assert waited == pytest.approx([*HORIZON_S, HORIZON_S[-1]])

    def test_an_answer_with_an_older_view_does_not_put_off_what_is_due(self, clock: Clock, claimed: Claimed) -> None:
        rig = Rig(clock, lanes=2)
        rig.claimer.listen(True)
        rig.find(*[claimed() for _ in range(100)])
        late = rig.plan(lane=1)
        rig.find()
        rig.find(own_xid=OWN_XID, oldest_xid=OWN_XID, next_due_s=0.3)

        rig.answer(late, oldest_xid=OWN_XID)

        assert rig.claimer.wait_s() == pytest.approx(0.3)


class TestFlag:
    def test_it_is_taken_down_when_there_has_been_work_for_a_while(self, asleep: Rig, claimed: Claimed) -> None:
        asleep.claimer.wake()
        asleep.find(claimed())
        assert not asleep.find(claimed()).disarm

        asleep.clock.forward(BUSY_S)

        assert asleep.plan().disarm

    def test_a_short_rest_begins_the_while_anew(self, asleep: Rig, claimed: Claimed) -> None:
        asleep.claimer.wake()
        asleep.find(claimed())
        asleep.find(oldest_xid=OWN_XID)

        asleep.clock.forward(BUSY_S)
        asleep.claimer.wake()

        assert not asleep.find(claimed()).disarm
        assert not asleep.plan().disarm

    def test_the_first_lane_takes_it_down(self, clock: Clock, claimed: Claimed) -> None:
        rig = Rig(clock, lanes=2)
        rig.fall_asleep()
        rig.claimer.wake()
        rig.find(*[claimed() for _ in range(100)])
        rig.clock.forward(BUSY_S)

        assert not rig.plan(lane=1).disarm
        assert rig.plan(lane=0).disarm

    def test_once_down_it_takes_the_whole_protocol_to_sleep(self, asleep: Rig, claimed: Claimed) -> None:
        asleep.claimer.wake()
        asleep.find(claimed())
        asleep.clock.forward(BUSY_S)
        assert asleep.find(claimed()).disarm

        asleep.find(oldest_xid=OWN_XID + 100)
        assert asleep.claimer.state is State.LOOKING
        assert asleep.plan().arm_s == POLL_S

    def test_it_is_taken_down_even_if_there_is_no_room_to_claim(self, asleep: Rig, claimed: Claimed) -> None:
        asleep.claimer.wake()
        asleep.find(claimed())
        asleep.clock.forward(BUSY_S)
        asleep.room = Room(["job"], None, 0)

        assert asleep.plan() == Plan(disarm=True)

    def test_it_is_not_taken_down_and_put_up_in_one_exchange(self, asleep: Rig, claimed: Claimed) -> None:
        asleep.clock.forward(POLL_S)
        asleep.find(claimed())
        asleep.find()
        asleep.clock.forward(BUSY_S)

        plan = asleep.plan()

        assert (plan.arm_s, plan.disarm) == (POLL_S, False)


class TestDegraded:
    def test_without_a_listener_it_polls_and_never_arms(self, rig: Rig) -> None:
        for _ in range(3):
            plan = rig.find()
            assert (plan.want is not None, plan.arm_s) == (True, None)
            assert rig.claimer.state is State.ASLEEP
            assert rig.claimer.wait_s() == POLL_S
            rig.clock.forward(POLL_S)

    def test_when_the_listener_is_gone_it_looks_at_once_and_takes_its_flag_down(self, asleep: Rig) -> None:
        asleep.claimer.listen(False)

        assert asleep.find().disarm
        assert asleep.claimer.state is State.ASLEEP
        assert not asleep.claimer.armed

    def test_it_does_not_arm_if_the_listener_is_gone_when_it_was_about_to(self, listening: Rig) -> None:
        listening.find()
        listening.claimer.listen(False)

        assert listening.plan().arm_s is None

    def test_a_listener_that_was_gone_for_a_moment_only_means_the_whole_protocol_too(self, asleep: Rig) -> None:
        asleep.claimer.listen(False)
        asleep.claimer.listen(True)

        asleep.find(oldest_xid=OWN_XID + 100)

        assert asleep.claimer.state is State.LOOKING

    def test_when_the_listener_is_back_it_takes_the_whole_protocol_to_sleep(self, asleep: Rig) -> None:
        asleep.claimer.listen(False)
        asleep.find()
        asleep.claimer.listen(True)

        asleep.find(oldest_xid=OWN_XID + 100)
        assert asleep.claimer.state is State.LOOKING
        assert asleep.plan().arm_s == POLL_S


class TestRoom:
    def test_a_claim_asks_for_no_more_than_there_is_room_for(self, rig: Rig) -> None:
        rig.room = Room(["a", "b"], [2, None], 7)

        want = rig.plan().want

        assert want is not None
        assert (want.topics, want.slots, want.limit) == (["a", "b"], [2, None], 7)

    @pytest.mark.parametrize("room", [Room(["job"], None, 0), Room(["job"], None, -3), Room([], [], 5)])
    def test_without_room_it_claims_nothing_and_waits_to_be_told(self, rig: Rig, room: Room) -> None:
        rig.room = room

        assert rig.plan() == Plan()
        assert rig.claimer.wait_s() is None

    def test_other_lanes_claim_only_while_there_is_plenty(self, clock: Clock, claimed: Claimed) -> None:
        rig = Rig(clock, lanes=2)
        assert rig.plan(lane=1).want is None

        first = rig.find(*[claimed() for _ in range(100)])
        assert first.want is not None
        assert first.want.limit == 100
        assert rig.plan(lane=1).want is not None

        rig.find(claimed())
        assert rig.plan(lane=1).want is None

    def test_other_lanes_never_arm(self, clock: Clock, claimed: Claimed) -> None:
        rig = Rig(clock, lanes=2)
        rig.claimer.listen(True)
        rig.find(*[claimed() for _ in range(100)])
        other = rig.plan(lane=1)

        rig.find()

        assert other.arm_s is None
        assert rig.plan(lane=1) == Plan()
        assert rig.plan(lane=0).arm_s == POLL_S

    def test_claims_that_are_on_their_way_together_ask_for_no_more_than_there_is_room_for(
        self, clock: Clock, claimed: Claimed
    ) -> None:
        rig = Rig(clock, lanes=2)
        rig.find(*[claimed() for _ in range(100)])
        rig.room = Room(["job"], None, 5)

        wants = [rig.plan(lane=0).want, rig.plan(lane=1).want]

        assert [want and want.limit for want in wants] == [3, 2]
        assert rig.plan(lane=0).want is None

    def test_the_same_holds_for_each_topic(self, clock: Clock, claimed: Claimed) -> None:
        rig = Rig(clock, lanes=2)
        rig.find(*[claimed() for _ in range(100)])
        rig.room = Room(["narrow", "wide"], [2, None], 50)

        first, second = rig.plan(lane=0).want, rig.plan(lane=1).want

        assert first is not None
        assert second is not None
        assert (first.topics, first.slots) == (["narrow", "wide"], [2, None])
        assert (second.topics, second.slots) == (["wide"], [None])

    def test_a_claim_that_failed_leaves_its_room_to_the_next(self, rig: Rig) -> None:
        plan = rig.plan()
        assert rig.plan().want is None

        rig.claimer.ended(plan)

        want = rig.plan().want
        assert want is not None
        assert want.limit == 100

    def test_the_next_claim_goes_on_where_the_last_one_ended(self, rig: Rig, claimed: Claimed) -> None:
        rig.room = Room(["a", "b"], None, 100)

        rig.find(claimed("a", channel="x"), claimed("b", channel="y"), claimed("b", channel="z"))

        want = rig.plan().want
        assert want is not None
        assert (want.after_topic, want.after_channels) == ("b", '{"a": "x", "b": "z"}')

    def test_batches_are_claimed_beside_everything_else_and_have_room_of_their_own(
        self, rig: Rig, claimed: Claimed
    ) -> None:
        rig.room = Room(["job"], None, 10, Room(["bulk", "heap"], [500, 100], 600))

        rig.find(claimed("job"), claimed("bulk"))

        want = rig.plan().want
        assert want is not None
        assert want.batches is not None
        assert (want.topics, want.limit) == (["job"], 10)
        assert (want.batches.topics, want.batches.slots, want.batches.limit) == (["bulk", "heap"], [500, 100], 600)
        assert want.batches.after_topic == "bulk"

    def test_a_batch_is_never_claimed_in_two_halves(self, clock: Clock, claimed: Claimed) -> None:
        rig = Rig(clock, lanes=2)
        rig.room = Room(["job"], None, 10, Room(["bulk"], [500], 500))
        rig.find(*[claimed("job") for _ in range(10)])

        first, second = rig.plan(lane=0).want, rig.plan(lane=1).want

        assert first is not None
        assert first.batches is not None
        assert (first.limit, first.batches.limit) == (5, 500)
        assert second is not None
        assert (second.limit, second.batches) == (5, None)

    def test_a_full_batch_lets_the_other_lanes_claim_too(self, clock: Clock, claimed: Claimed) -> None:
        rig = Rig(clock, lanes=2)
        rig.room = Room([], [], 10, Room(["bulk"], [3], 3))

        rig.find(*[claimed("bulk") for _ in range(3)])

        assert rig.plan(lane=1).want is not None

    def test_while_all_places_are_taken_only_batches_are_claimed(self, rig: Rig) -> None:
        rig.room = Room(["job"], None, 0, Room(["bulk"], [500], 500))

        want = rig.plan().want

        assert want is not None
        assert [each.topics for each in want.parts] == [["bulk"]]

    def test_it_looks_again_when_what_was_left_out_has_room(self, listening: Rig) -> None:
        listening.room = Room(["job"], None, 0, Room(["bulk"], [500], 500))
        listening.fall_asleep()
        assert listening.plan() == Plan()

        listening.room = Room(["job"], None, 1, Room(["bulk"], [500], 500))

        want = listening.plan().want
        assert want is not None
        assert want.topics == ["job"]

    def test_what_waits_in_a_batch_has_not_begun(self, rig: Rig) -> None:
        rig.room = Room(["job"], None, 10, Room(["bulk"], [500], 500, places=0))

        want = rig.plan().want

        assert want is not None
        assert want.batches is not None
        assert (want.start, want.batches.start) == (None, 0)

    def test_stopped_it_plans_nothing_any_more(self, asleep: Rig) -> None:
        asleep.claimer.stop()
        asleep.claimer.wake()

        assert asleep.plan() == Plan()
        assert asleep.claimer.wait_s() is None


def test_daemons_that_started_together_do_not_stay_together() -> None:
    waits = [jittered(10) for _ in range(200)]

    assert all(8 <= each <= 12 for each in waits)
    assert max(waits) - min(waits) > 1


class TestSource:
    """Why a claim is made, and how long a sleep was that a publish would have ended."""

    def test_a_notification_wakes_it(self, asleep: Rig) -> None:
        asleep.clock.forward(2.0)

        asleep.claimer.rung()

        plan = asleep.plan()
        assert (plan.source, plan.slept_s) == (Source.NOTIFY, 2.0)

    def test_nothing_was_heard_for_a_poll_interval(self, asleep: Rig) -> None:
        asleep.clock.forward(POLL_S)

        plan = asleep.plan()

        assert (plan.source, plan.slept_s) == (Source.POLL, POLL_S)

    def test_a_delayed_message_is_due(self, rig: Rig) -> None:
        rig.fall_asleep(next_due_s=1.0)
        rig.clock.forward(1.0)

        assert rig.plan().source is Source.TIMER

    def test_a_limit_may_let_go(self, rig: Rig) -> None:
        rig.fall_asleep(held_back=True)
        rig.clock.forward(HELD_BACK_S)

        assert rig.plan().source is Source.TIMER

    def test_what_follows_a_claim_that_found_something_is_busy(self, asleep: Rig, claimed: Claimed) -> None:
        asleep.claimer.rung()
        asleep.find(claimed())

        plan = asleep.plan()

        assert (plan.source, plan.slept_s) == (Source.BUSY, 0.0)

    def test_a_place_that_became_free_is_no_notification(self, asleep: Rig) -> None:
        asleep.claimer.wake()

        assert asleep.plan().source is Source.BUSY

    def test_a_notification_that_comes_while_it_looks_did_not_wake_it(self, listening: Rig) -> None:
        listening.claimer.rung()

        assert listening.plan().source is Source.BUSY

    def test_a_daemon_that_does_not_hear_has_not_slept_as_far_as_notifications_go(self, rig: Rig) -> None:
        rig.find()
        assert rig.claimer.state is State.ASLEEP
        rig.clock.forward(POLL_S)

        plan = rig.plan()

        assert (plan.source, plan.slept_s) == (Source.POLL, 0.0)

    def test_a_look_without_room_is_owed_to_nothing_when_room_comes(self, asleep: Rig) -> None:
        full, asleep.room = asleep.room, Room(["job"], None, 0)
        asleep.claimer.rung()
        assert asleep.plan().want is None
        asleep.room = full

        assert asleep.plan().source is Source.BUSY
