"""The life of messages against a model in Python.

It tries any sequence of publishes, claims, settles, operations and passing time.

After each step the database must agree with the model: each published message is in one of the two tables, once, with
the attempts, the lock, the time and the result of the model; and no limit is exceeded. At the end every message must be
able to end. PGROUSE_MODEL_EXAMPLES=2000 makes the run a long one.
"""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)
from psycopg import errors
from psycopg.types.json import Jsonb

from tests.model.model import DEAD, POLICIES, SET_POLICIES, Claim, Full, KeyTaken, Live, Model
from tests.sql.queue import Queue

DEFAULT_EXAMPLES = 100
EXAMPLES = int(os.environ.get("PGROUSE_MODEL_EXAMPLES", DEFAULT_EXAMPLES))
STEPS = 40
EMPTY = """
    DELETE FROM messages.message;
    DELETE FROM messages.message_archive;
    DELETE FROM messages.redrive_log;
    DELETE FROM messages.blocked_message;
    DELETE FROM messages.dependency;
    DELETE FROM messages.end_event;
    DELETE FROM messages.low_water;
    DELETE FROM messages.claim_cursor;
    DELETE FROM messages.alert;
    DELETE FROM messages.channel;
    DELETE FROM messages.rate;
    DELETE FROM messages.depth;
    DELETE FROM messages.depth_change;
    DELETE FROM messages.batch;
    DELETE FROM messages.batch_shard;
    DELETE FROM messages.batch_callback;
    UPDATE messages.topic SET paused_at = NULL, resume_at = NULL WHERE paused_at IS NOT NULL;
    UPDATE messages.topic SET max_attempts = 3 WHERE topic = 'thrice'
"""
REFUSALS = {errors.UniqueViolation.sqlstate: KeyTaken, "PGR01": Full}

topics = st.sampled_from(sorted(POLICIES))
some_topics = st.lists(topics, min_size=1, unique=True)
channels = st.sampled_from([None, None, "a", "b"])
workers = st.sampled_from(["w1", "w2"])
seconds = st.sampled_from([0, 1, 5, 15, 30, 61]).map(lambda s: timedelta(seconds=s))
seconds_of_delay = st.sampled_from([0, 0, 1, 5]).map(lambda s: timedelta(seconds=s))
lock_times = st.sampled_from([None, timedelta(seconds=5), timedelta(seconds=61)])
ways_to_return = st.sampled_from(["retry", "defer", "release"])
conflicts = st.sampled_from(["error", "replace", "ignore", "append"])
descriptions = st.fixed_dictionaries(
    {
        "topic": st.integers(0, 2),
        "channel": channels,
        "key": st.sampled_from([None, None, "k"]),
        "priority": st.sampled_from([0, 5, 5, 9]),
        "max_attempts": st.sampled_from([None, None, 0, 1, 2]),
        "wait": st.sampled_from([0, 0, 0, 5, 60]),
    }
)


def some_claims(claims: Any) -> Any:
    return st.lists(claims, min_size=1, max_size=3, unique_by=lambda claim: claim[0])


class Lifecycle(RuleBasedStateMachine):
    """All operations on messages."""

    messages = Bundle("messages")
    claims = Bundle("claims")

    def __init__(self, queue: Queue) -> None:
        super().__init__()
        self.queue = queue
        self.model = Model()
        self.few: list[str] = []
        self.numbers = count(1)
        queue.conn.execute(EMPTY.encode())
        # Claims use random numbers; a run that is repeated must draw the same ones.
        queue.value("SELECT setseed(0)")
        # One message in three is in none.
        self.batches = [None, *(queue.call("create_batch", on_finish="finished") for _ in range(2))]
        # Otherwise no message could be reported as ready.
        queue.call("register_worker", "w1", "host", 1, "1.0", sorted(POLICIES), 10)
        self.show_time()

    def show_time(self) -> None:
        self.queue.conn.execute("SELECT set_config('messages.fake_now', %s, false)", [self.model.now.isoformat()])

    # Publishing

    @initialize(target=messages, few=st.lists(topics, min_size=1, max_size=3, unique=True), described=descriptions)
    def begin(self, few: list[str], described: dict[str, Any]) -> Any:
        """A run has few topics, so that their messages interact."""
        self.few = few
        return self.publish("error", described)

    @rule(target=messages, described=descriptions, on_conflict=conflicts)
    def publish(self, on_conflict: str, described: dict[str, Any]) -> Any:
        topic = self.few[described["topic"] % len(self.few)]
        return multiple(*self.published(on_conflict, **described | {"topic": topic}))

    @rule(target=messages, described=descriptions, on_conflict=conflicts)
    def publish_a_key(self, on_conflict: str, described: dict[str, Any]) -> Any:
        return self.publish(on_conflict, described | {"key": "k", "wait": 0})

    @rule(target=messages, described=descriptions, channel=st.sampled_from("ab"))
    def publish_to_a_channel(self, described: dict[str, Any], channel: str) -> Any:
        return self.publish("error", described | {"channel": channel, "key": None, "wait": 0})

    @rule(
        target=messages,
        described=descriptions,
        after=st.lists(messages, min_size=1, max_size=3),
        after_failed=st.sampled_from(["hold", "cancel", "run"]),
    )
    def publish_after_others(self, described: dict[str, Any], after: list[int], after_failed: str) -> Any:
        topic = self.few[described["topic"] % len(self.few)]
        if POLICIES[topic].subscribers:
            return multiple()
        columns = described | {"topic": topic, "after": after, "after_failed": after_failed}
        return multiple(*self.published("error", **columns))

    @rule(target=messages, described=descriptions, later=descriptions)
    def one_dies_and_is_redriven_before_another(self, described: dict[str, Any], later: dict[str, Any]) -> Any:
        topic = self.few[described["topic"] % len(self.few)]
        first = self.published("error", **described | {"topic": topic, "key": None, "wait": 0})
        if not first or POLICIES[topic].subscribers:
            return multiple(*first)
        after = {"topic": topic, "key": None, "wait": 0, "after": first}
        last = self.published("error", **later | after)
        self.skip(first)
        back = list(self.redrive(first).values)
        held = list(self.claims_what_may_be_claimed("w1", [topic], 5, None).values)
        if held:
            self.complete(held)
        return multiple(*first, *last, *back)

    def published(
        self,
        on_conflict: str,
        topic: str,
        wait: int,
        *,
        after: list[int] | None = None,
        after_failed: str = "hold",
        **columns: Any,
    ) -> list[int]:
        """Publish a message as the model does, and return the ids that are new."""
        if topic == "news" or columns["key"] is None:
            # A copy would meet the keys of each subscriber; that is tested elsewhere.
            columns["key"], on_conflict = None, "error"
        if topic == "ordered":
            # One order, whatever the priorities.
            columns["priority"] = 5
        payload, available_at = {"n": next(self.numbers)}, self.model.now + timedelta(seconds=wait)
        wanted = Live(0, topic, payload=payload, available_at=available_at, **columns)
        try:
            row = self.queue.row(
                """
                SELECT p.id, p.outcome FROM messages.publish(
                  %(topic)s, %(payload)s, %(key)s, %(on_conflict)s, p_channel => %(channel)s,
                  p_priority => %(priority)s,
                  p_max_attempts => %(max_attempts)s, p_available_at => %(available_at)s,
                  p_after => %(after)s::bigint[], p_after_failed => %(after_failed)s, p_batch_id => %(batch)s) AS p
                """,
                {
                    **columns,
                    "topic": topic,
                    "payload": Jsonb(payload),
                    "on_conflict": on_conflict,
                    "available_at": available_at,
                    "after": after,
                    "after_failed": after_failed,
                    "batch": self.batches[payload["n"] % 3],
                },
            )
        except psycopg.DatabaseError as error:
            with pytest.raises(REFUSALS[error.sqlstate]):
                self.model.publish(wanted, on_conflict)
            return []
        new = self.inserted_ids(replace(wanted, id=row.id or 0), row.outcome, on_conflict)
        if after and new:
            self.model.block(row.id, after, after_failed)
        self.model.propagate_ends()
        return new

    def inserted_ids(self, wanted: Live, what: str, on_conflict: str) -> list[int]:
        waiting = self.model.waiting_with_key(wanted.topic, wanted.key)
        assert what == self.model.publish(wanted, on_conflict)
        if what != "inserted":
            assert wanted.id == (waiting.id if waiting else 0)
            return []
        if not POLICIES[wanted.topic].subscribers:
            return [wanted.id]
        copies = self.queue.archived(wanted.id).output["fanned_out"]
        self.model.fan_out(wanted.id, copies)
        return [wanted.id, *copies.values()]

    # Claiming

    @precondition(lambda self: any(map(self.model.is_due, self.model.live.values())))
    @rule(target=claims, worker=workers, limit=st.integers(1, 5))
    def claim_of_all_topics(self, worker: str, limit: int) -> Any:
        return self.claims_what_may_be_claimed(worker, sorted(POLICIES), limit, None)

    @precondition(lambda self: any(map(self.model.is_due, self.model.live.values())))
    @rule(target=claims, worker=workers, wanted=some_topics, limit=st.integers(1, 5), lock_duration=lock_times)
    def claim(self, worker: str, wanted: list[str], limit: int, lock_duration: timedelta | None) -> Any:
        return self.claims_what_may_be_claimed(worker, wanted, limit, lock_duration)

    def claims_what_may_be_claimed(
        self, worker: str, wanted: list[str], limit: int, lock_duration: timedelta | None
    ) -> Any:
        got = self.queue.claim(*wanted, worker=worker, limit=limit, lock_duration=lock_duration)
        ended = self.queue.rows(
            "SELECT id, result FROM messages.message_archive WHERE id = ANY (%s)", [list(self.model.live)]
        )
        claims = [(c.id, c.claim_id) for c in got]

        assert len(got) <= limit
        self.model.claim(claims, {e.id: e.result for e in ended}, worker, wanted, limit, lock_duration)
        self.model.propagate_ends()
        return multiple(*claims)

    @rule(
        target=claims,
        worker=workers,
        described=descriptions,
        channel=channels,
        way=ways_to_return,
    )
    def publish_claim_and_return(self, worker: str, described: dict[str, Any], channel: str | None, way: str) -> Any:
        """A returned message meets limits, keys and channels that were free when it was claimed."""
        self.publish("replace", described | {"channel": channel, "wait": 0})
        claimed = self.claims_what_may_be_claimed(worker, sorted(POLICIES), 5, None).values
        if claimed:
            self.publish("ignore", described | {"channel": channel, "wait": 0})
            self.return_attempts(way, list(claimed)[:3])
        return self.claims_what_may_be_claimed(worker, sorted(POLICIES), 5, None)

    @rule(
        described=descriptions,
        ways=st.tuples(ways_to_return, ways_to_return),
        at_once=st.booleans(),
        newest_first=st.booleans(),
    )
    def two_of_a_key_are_returned(
        self, described: dict[str, Any], ways: tuple[str, str], at_once: bool, newest_first: bool
    ) -> None:
        topic = self.few[described["topic"] % len(self.few)]
        for _ in range(2):
            self.publish("ignore", described | {"key": "k", "wait": 0, "max_attempts": None})
            self.claims_what_may_be_claimed("w1", [topic], 5, None)
        held = sorted(
            ((m.id, m.lock.claim_id) for m in self.model.running() if m.lock and (m.topic, m.key) == (topic, "k")),
            reverse=newest_first,
        )
        for way, batch in zip(ways, [held] if at_once else [held[:1], held[1:]], strict=False):
            self.return_attempts(way, batch)

    def return_attempts(self, way: str, held: list[Claim]) -> None:
        getattr(self, way)(held, **({} if way == "release" else {"delay": timedelta(seconds=5)}))

    # Settles of messages that some worker once claimed, whether it still holds them or not.

    @rule(held=some_claims(claims))
    def complete(self, held: list[Claim]) -> None:
        self.settle("complete", held, self.model.end_all(held, "success"))

    @rule(held=some_claims(claims))
    def reject(self, held: list[Claim]) -> None:
        self.settle("reject", held, self.model.end_all(held, "rejected"), ["why"] * len(held))

    @rule(held=some_claims(claims))
    def fail(self, held: list[Claim]) -> None:
        self.settle("fail", held, self.model.end_all(held, "failed"), ["why"] * len(held))

    @rule(held=some_claims(claims), delay=st.none() | seconds_of_delay)
    def retry(self, held: list[Claim], delay: timedelta | None) -> None:
        self.settle("retry", held, self.model.retry(held, delay), ["why"] * len(held), [delay] * len(held))

    @rule(held=some_claims(claims), delay=seconds_of_delay)
    def defer(self, held: list[Claim], delay: timedelta) -> None:
        self.settle("defer", held, self.model.return_attempts(held, delay), [delay] * len(held))

    @rule(held=some_claims(claims), timeout=seconds_of_delay)
    def wait_for_event(self, held: list[Claim], timeout: timedelta) -> None:
        # No event comes. A name of its own: a wait that begins again keeps its end.
        names = [f"event {next(self.numbers)}"] * len(held)
        lost = self.model.return_attempts(held, timeout)
        self.settle("wait_for_event", held, lost, names, [1] * len(held), [timeout] * len(held))

    @rule(held=some_claims(claims))
    def release(self, held: list[Claim]) -> None:
        self.settle("release", held, self.model.return_attempts(held, None))

    @rule(held=some_claims(claims), lock_duration=lock_times)
    def heartbeat(self, held: list[Claim], lock_duration: timedelta | None) -> None:
        self.settle("heartbeat", held, self.model.heartbeat(held, lock_duration), lock_duration)

    def settle(self, kind: str, held: list[Claim], expected: list[int], *arguments: Any) -> None:
        lost = self.queue.call(kind, [i for i, _ in held], [claim_id for _, claim_id in held], *arguments)
        assert sorted(lost) == sorted(expected)
        self.model.propagate_ends()

    # Time, operators, maintenance

    @rule(by=seconds)
    def time_passes(self, by: timedelta) -> None:
        self.model.now += by
        self.show_time()

    @precondition(lambda self: self.model.running())
    @rule(by=seconds)
    def locks_expire(self, by: timedelta) -> None:
        self.time_passes(by)
        assert self.queue.call("expire_locks") == self.model.expire_locks()

    @precondition(lambda self: self.model.running())
    @rule(worker=workers)
    def release_orphaned(self, worker: str) -> None:
        """A worker that does not know its messages releases them all."""
        held = [(m.id, m.lock.claim_id) for m in self.model.running() if m.lock and m.lock.worker == worker]
        self.model.return_attempts(held, None)

        assert sorted(self.queue.call("release_orphaned", worker, [])) == sorted(i for i, _ in held)

    @rule(by=seconds)
    def messages_expire(self, by: timedelta) -> None:
        self.time_passes(by)
        assert self.queue.call("expire_messages") == self.model.expire_messages()

    @rule(nth=st.integers(0, 2), channel=channels, resume_in=st.none() | seconds_of_delay.filter(bool))
    def pause(self, nth: int, channel: str | None, resume_in: timedelta | None) -> None:
        topic = self.few[nth % len(self.few)]
        until = self.queue.call("pause", topic, channel=channel, resume_in=resume_in)

        assert until == (None if resume_in is None else self.model.now + resume_in)
        self.model.paused[topic, channel] = until

    @precondition(lambda self: self.model.paused)
    @rule(data=st.data())
    def resume(self, data: st.DataObject) -> None:
        topic, channel = data.draw(st.sampled_from(sorted(self.model.paused, key=str)))
        self.queue.call("resume", topic, channel=channel)
        del self.model.paused[topic, channel]

    @rule(most=st.integers(1, 3))
    def maintain(self, most: int) -> None:
        """Change a limit and raise marks."""
        self.queue.policy("thrice", max_attempts=most)
        self.model.limits["thrice"] = most
        self.queue.conn.execute("UPDATE messages.low_water_mark SET next_run_at = 'epoch'")
        self.queue.value("SELECT messages.raise_low_water('0 s')")

    @precondition(lambda self: len(self.model.live) > 3)
    @rule(ids=st.lists(messages, min_size=1, max_size=2, unique=True))
    def cancel(self, ids: list[int]) -> None:
        assert sorted(self.queue.call("cancel", ids)) == sorted(self.model.cancel(ids))

    @precondition(lambda self: len(self.model.live) > 3)
    @rule(ids=st.lists(messages, min_size=1, max_size=2, unique=True))
    def skip(self, ids: list[int]) -> None:
        assert sorted(self.queue.call("skip", ids)) == sorted(self.model.skip(ids))

    @rule(message_id=messages)
    def explain(self, message_id: int) -> None:
        """It returns ready for messages that the model would claim, and running for locked ones.

        For all others it returns something else.
        """
        codes = [row.code for row in self.queue.rows("SELECT code FROM messages.explain(%s)", [message_id])]
        message = self.model.live.get(message_id)
        lock = message.lock if message else None

        assert codes
        assert ("running" in codes) is (lock is not None and lock.expires_at >= self.model.now)
        assert ("lock_ran_out" in codes) is (lock is not None and lock.expires_at < self.model.now)
        assert ("ready" in codes) is (message is not None and self.model.may_be_claimed(message))

    @precondition(lambda self: any(e.result in DEAD for e in self.model.archive.values()))
    @rule(target=messages, ids=st.lists(messages, min_size=1, max_size=6, unique=True))
    def redrive(self, ids: list[int]) -> Any:
        rows = self.queue.rows("SELECT * FROM messages.redrive(%s)", [ids])

        assert {row.archived_id: row.outcome for row in rows} == self.model.redrive(ids)
        back = [row for row in rows if row.outcome in ("redriven", "keyless")]
        for row in back:
            self.model.add_redriven(row.archived_id, row.message_id, row.outcome)
        self.model.propagate_ends()
        return multiple(*(row.message_id for row in back))

    @rule()
    def propagate_missed_ends(self) -> None:
        """Every end was propagated when it was committed: the tick has nothing to do."""
        self.queue.call("propagate_missed_ends")

    @precondition(lambda self: self.model.blocked)
    @rule(data=st.data())
    def unblock(self, data: st.DataObject) -> None:
        message_id = data.draw(st.sampled_from(sorted(self.model.blocked)))

        assert self.queue.call("unblock", [message_id]) == [message_id]
        self.model.blocked[message_id] = replace(self.model.blocked[message_id], predecessors=frozenset())
        self.model.propagate_ends()

    # What always holds

    @invariant()
    def every_message_is_in_exactly_one_table_and_agrees_with_the_model(self) -> None:
        self.model.propagate_ends()
        live = self.queue.rows(
            """
            SELECT id, topic, key, payload, attempts, claim_id, locked_by, lock_expires_at, available_at, expires_at,
                   redriven_from,
                   coalesce(jsonb_array_length(history), 0) AS ended
            FROM messages.message
            """
        )
        archive = self.queue.rows(
            "SELECT id, topic, key, payload, attempts, claim_id, result, redriven_from "
            "FROM messages.message_archive ORDER BY id"
        )

        assert {row.id: tuple(row)[1:] for row in live} == {
            m.id: (
                *(m.topic, m.key, m.payload, m.attempts),
                *((m.lock.claim_id, m.lock.worker, m.lock.expires_at) if m.lock else (None, None, None)),
                *(m.available_at, m.expires_at, m.redriven_from, m.ended),
            )
            for m in self.model.live.values()
        }
        assert [tuple(row) for row in archive] == [
            (
                *(i, e.message.topic, e.message.key, e.message.payload, e.message.attempts),
                *(e.message.lock and e.message.lock.claim_id, e.result, e.message.redriven_from),
            )
            for i, e in sorted(self.model.archive.items())
        ]

    @invariant()
    def no_limit_is_exceeded_and_no_counter_drifts(self) -> None:
        broken = self.queue.rows(
            """
            SELECT 'key' AS what, m.topic::text FROM messages.message AS m
            WHERE m.key IS NOT NULL AND m.attempts = 0 AND m.claim_id IS NULL
            GROUP BY m.topic, m.key HAVING count(*) > 1
            UNION ALL
            SELECT 'channel', m.topic FROM messages.message AS m JOIN messages.topic AS t USING (topic)
            WHERE m.claim_id IS NOT NULL AND m.channel IS NOT NULL
            GROUP BY m.topic, m.channel, t.ordered, t.channel_concurrency
            HAVING count(*) > CASE WHEN t.ordered THEN 1 ELSE t.channel_concurrency END
            UNION ALL
            SELECT 'topic', m.topic FROM messages.message AS m JOIN messages.topic AS t USING (topic)
            WHERE m.claim_id IS NOT NULL GROUP BY m.topic, t.max_concurrency HAVING count(*) > t.max_concurrency
            UNION ALL
            SELECT 'depth', d.topic FROM messages.depth AS d
            WHERE d.rows + coalesce((SELECT sum(c.change) FROM messages.depth_change AS c WHERE c.topic = d.topic), 0)
               <> (SELECT count(*) FROM messages.message AS m WHERE m.topic = d.topic)
            UNION ALL
            SELECT 'batch', b.id::text
            FROM messages.batch_state AS b
            CROSS JOIN LATERAL (
              SELECT count(*) FILTER (WHERE a.result = 'success') AS succeeded,
                     count(*) FILTER (
                       WHERE a.result NOT IN ('success', 'cancelled')
                         AND NOT EXISTS (SELECT FROM messages.redrive_log AS r WHERE r.archived_id = a.id)) AS dead,
                     count(*) FILTER (WHERE a.result = 'cancelled') AS cancelled
              FROM messages.message_archive AS a WHERE a.batch_id = b.id
            ) AS n
            WHERE (b.live, b.succeeded, b.dead, b.cancelled) <> (
              (SELECT count(*) FROM messages.message AS m WHERE m.batch_id = b.id), n.succeeded, n.dead, n.cancelled)
            """
        )

        assert broken == []

    def teardown(self) -> None:
        """Run all that is left: no message is stuck."""
        for topic, channel in list(self.model.paused):
            self.queue.call("resume", topic, channel=channel)
        self.model.paused.clear()
        self.time_passes(timedelta(hours=1))
        self.queue.call("expire_locks")
        self.queue.call("unblock", list(self.model.live))
        self.time_passes(timedelta(hours=1))
        for _ in range(len(self.model.live) + 1):
            claimed = self.queue.claim(*sorted(POLICIES), limit=100)
            self.queue.settle("complete", claimed)

        assert self.queue.ids() == []
        ends = self.queue.rows("SELECT id FROM messages.message_archive ORDER BY id")
        assert [row.id for row in ends] == sorted({*self.model.live, *self.model.archive})
        for batch in self.batches[1:]:
            self.queue.call("close_batch", batch)
        finished = self.queue.rows("SELECT state FROM messages.batch_state WHERE callbacks -> 'finish' ? 'message'")
        assert [row.state for row in finished] == ["finished", "finished"]
        self.no_limit_is_exceeded_and_no_counter_drifts()


@pytest.mark.timeout(600 if EXAMPLES <= DEFAULT_EXAMPLES else 0)
def test_messages_agree_with_the_model(db: psycopg.Connection[Any]) -> None:
    db.execute(SET_POLICIES)

    class OnThisDatabase(Lifecycle):
        def __init__(self) -> None:
            super().__init__(Queue(db))

    run_state_machine_as_test(
        OnThisDatabase,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            # The same examples in every run, unless a long run searches for new ones.
            derandomize=EXAMPLES <= DEFAULT_EXAMPLES,
            suppress_health_check=list(HealthCheck),
        ),
    )
