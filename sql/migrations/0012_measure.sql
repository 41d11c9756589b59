-- What the daemons measured, by minute and topic: how attempts ended, and how long messages waited and handlers ran.
-- Each histogram is one number: 48 buckets of 12 decimal digits, the first bucket first (messages.pack, messages.unpack). sum() adds such
-- numbers bucket by bucket, which it cannot do with arrays: an hour of a hundred topics in 2 ms instead of 50.
-- waits: from available to claimed. runs: one entry for each call of a handler. wakes: the waits of messages that came while a daemon slept and a
-- notification woke it.

CREATE TABLE messages.measure (
  minute       timestamptz NOT NULL,
  topic        text        COLLATE "C" NOT NULL CHECK (octet_length(topic) <= 200),
  success      bigint      NOT NULL DEFAULT 0,
  rejected     bigint      NOT NULL DEFAULT 0,
  failed       bigint      NOT NULL DEFAULT 0,
  lock_expired bigint      NOT NULL DEFAULT 0,
  retried      bigint      NOT NULL DEFAULT 0,
  deferred     bigint      NOT NULL DEFAULT 0,
  released     bigint      NOT NULL DEFAULT 0,
  lost         bigint      NOT NULL DEFAULT 0,
  waits        numeric     NOT NULL DEFAULT 0 CHECK (waits >= 0),
  runs         numeric     NOT NULL DEFAULT 0 CHECK (runs >= 0),
  wakes        numeric     NOT NULL DEFAULT 0 CHECK (wakes >= 0),
  PRIMARY KEY (minute, topic)
) WITH (
  -- Each daemon writes the newest minute's rows every few seconds: with room beside them those are HOT updates. Older rows are only read.
  fillfactor = 70,
  autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_threshold = 1000
);

-- Which of its reports a worker has got through: the same one again, because its answer was lost, adds nothing.
ALTER TABLE messages.worker ADD COLUMN measured bigint NOT NULL DEFAULT 0;
