-- Messages that come after others, and steps of a message that are done once.

-- It gets two more arguments: one with the old list beside the new one would make every call ambiguous.
-- squawk-ignore ban-drop-function
DROP FUNCTION IF EXISTS messages.publish(
  text, jsonb, text, text, bytea, jsonb, text, integer, interval, timestamptz, interval, integer);

-- What is known of a message that waits for others, beside its row of messages.message, whose available_at is the end of the domain until then:
-- no claim ever reads over it. What its publisher wanted of times counts from its release.
CREATE TABLE messages.parked (
  id           bigint      PRIMARY KEY,
  after_failed text        NOT NULL CHECK (after_failed IN ('hold', 'cancel', 'run')),
  available_at messages.moment,
  delay        interval,
  ttl          interval,
  -- How many it waited for in the beginning.
  width        integer     NOT NULL,
  -- When the tick looks whether an end was missed, and below which transaction somebody may have ended one of them without seeing this row.
  look_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  seen_below   xid8
);
CREATE INDEX parked_look_at ON messages.parked (look_at);

-- What comes after what. died: how the predecessor ended, if that was not well and the successor goes on waiting.
CREATE TABLE messages.edge (
  successor_id   bigint NOT NULL,
  predecessor_id bigint NOT NULL,
  died           text   CHECK (died IN ('rejected', 'failed', 'lock_expired', 'expired', 'cancelled')),
  PRIMARY KEY (successor_id, predecessor_id)
);
CREATE INDEX edge_predecessor ON messages.edge (predecessor_id, successor_id);

-- Ends that the successors have not heard of yet. result: as in the archive, or redriven: its edges go to the message that it became.
CREATE TABLE messages.ending (
  id     bigint PRIMARY KEY,
  result text   NOT NULL
    CHECK (result IN ('success', 'rejected', 'failed', 'lock_expired', 'expired', 'cancelled', 'redriven'))
);

-- What the steps of a handler returned: a later attempt gets it instead of doing the step again.
CREATE TABLE messages.step (
  message_id bigint      NOT NULL,
  name       messages.key_name NOT NULL,
  result     jsonb       NOT NULL,
  attempt    integer     NOT NULL,
  kept_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (message_id, name)
);
-- How far messages.prune_steps has come: it goes round.
CREATE SEQUENCE messages.step_place MINVALUE 0;
