-- Sessions that are to be woken: workers that sleep until a message is published, and callers that wait until one has
-- ended.

-- The armed sleepers. A publish notifies only while a row here asks for its topic and would otherwise look later than
-- the row is due. topics NULL = every topic. Logged, since a standby cannot read an unlogged table, but armed with
-- synchronous_commit = off: no flush is paid.
CREATE TABLE messages.sleeper (
  worker       text        PRIMARY KEY,
  topics       text[],
  -- Those of them that are patterns: a publish looks at them by the patterns that match its topic.
  patterns     text[]      GENERATED ALWAYS AS (messages.topic_patterns(topics)) STORED,
  armed_until  timestamptz NOT NULL,
  next_look_at timestamptz NOT NULL
) WITH (
  fillfactor = 20,
  autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold = 100,
  autovacuum_vacuum_cost_delay = 0
);

-- Until when any worker may be armed, in seconds since 1970: the latest armed_until that was ever written. A publish
-- reads this first. A sequence, since reading one costs next to nothing and needs no snapshot. It is raised together
-- with the row, before the xid that proves the sleep is taken, and never lowered.
CREATE SEQUENCE messages.armed_until AS bigint;
SELECT setval('messages.armed_until', 1);

-- The topics that are notified whether a worker sleeps or not (notify = 'always', for listeners outside): bit 0, which
-- is always set, and one bit for each, by the hash of its name; written by the triggers of policies and the tick. The
-- trigger apply_publish_policies is called while there is one.
CREATE SEQUENCE messages.always_topic_bits AS bigint;
SELECT setval('messages.always_topic_bits', 1);

-- The messages whose end someone waits for: only the ends of these messages notify settled.
CREATE TABLE messages.waiter (
  message_id bigint      PRIMARY KEY,
  until      timestamptz NOT NULL
);
CREATE INDEX waiter_until ON messages.waiter (until);

-- The publishers who may know how their messages ended: each asked for that when it published. role: that which
-- logged in. Rows are deleted a day after they were last of use.
CREATE TABLE messages.expected_result (
  message_id bigint      NOT NULL,
  role       name        NOT NULL,
  until      timestamptz NOT NULL,
  PRIMARY KEY (message_id, role)
);
CREATE INDEX expected_result_until ON messages.expected_result (until);

-- This sequence tells whether there may be waiters: 2 = yes. It is a sequence, for the reasons of
-- messages.policy_topic_bits, and one of its own, so that waiters cost publishers nothing. It is raised before the
-- waiter is committed, and lowered by the tick once none is left.
CREATE SEQUENCE messages.awaited_flag AS smallint;
SELECT setval('messages.awaited_flag', 1);
