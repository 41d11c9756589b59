-- Messages that come after others, and steps of a message that are done once.

-- Facts about a message that waits for others. Its row of messages.message has the rest: its available_at is the end
-- of the domain until then: no claim ever reads over it. The times that its publisher asked for count from its release.
CREATE TABLE messages.blocked_message (
  id           bigint      PRIMARY KEY,
  after_failed text        NOT NULL CHECK (after_failed IN ('hold', 'cancel', 'run')),
  available_at messages.moment,
  delay        interval,
  ttl          interval,
  -- The number of predecessors that it waited for in the beginning.
  width        integer     NOT NULL,
  -- The time at which the tick looks whether an end was missed, and below which transaction one of them may have ended
  -- without this row being seen.
  check_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  checked_below   xid8
);
CREATE INDEX blocked_message_check_at ON messages.blocked_message (check_at);

-- The order of messages: which comes after which. failed_result: how the predecessor ended, if that was not well and
-- the successor goes on waiting.
CREATE TABLE messages.dependency (
  successor_id   bigint NOT NULL,
  predecessor_id bigint NOT NULL,
  failed_result          text CHECK (failed_result IN ('rejected', 'failed', 'lock_expired', 'expired', 'cancelled')),
  PRIMARY KEY (successor_id, predecessor_id)
);
CREATE INDEX dependency_predecessor ON messages.dependency (predecessor_id, successor_id);
CREATE INDEX dependency_failed ON messages.dependency (successor_id, failed_result) WHERE failed_result IS NOT NULL;

-- Ends that were not passed on to the successors yet. result: as in the archive, or redriven: its edges go to the
-- message that it became.
CREATE TABLE messages.end_event (
  id     bigint PRIMARY KEY,
  result text   NOT NULL
    CHECK (result IN ('success', 'rejected', 'failed', 'lock_expired', 'expired', 'cancelled', 'redriven'))
);

-- After which messages a message was published, in the order of its publisher: its worker may ask how they ended. The
-- row stays as long as the message, live or archived; a redrive copies it.
CREATE TABLE messages.predecessor_list (
  message_id  bigint   PRIMARY KEY,
  ids         bigint[] NOT NULL,
  -- The workflow has the id of its first message: a message belongs to that of the oldest one that it comes after.
  workflow_id bigint   NOT NULL
);
CREATE INDEX predecessor_list_workflow ON messages.predecessor_list (workflow_id, message_id);

-- The results of the steps of a handler: a later attempt gets them instead of doing the step again.
CREATE TABLE messages.step (
  message_id bigint      NOT NULL,
  name       messages.key_name NOT NULL,
  result     jsonb       NOT NULL,
  attempt    integer     NOT NULL,
  kept_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  -- Under which claim it was kept: a step that two claims have done is an error for the later one.
  claim_id   bigint,
  PRIMARY KEY (message_id, name)
);
