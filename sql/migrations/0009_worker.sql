-- The registry of daemons, and what they measured.

CREATE TABLE messages.worker (
  name           text        PRIMARY KEY,
  host           text        NOT NULL,
  pid            integer     NOT NULL,
  version        text        NOT NULL,
  -- Names of topics, and patterns.
  topics         text[]      NOT NULL,
  patterns       text[]      GENERATED ALWAYS AS (messages.topic_patterns(topics)) STORED,
  concurrency    integer     NOT NULL,
  started_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  seen_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
  stopping       boolean     NOT NULL DEFAULT false,
  status         jsonb       NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(status) = 'object'),
  -- The report that was counted last: the same report again, because its answer was lost, adds nothing.
  measured       bigint      NOT NULL DEFAULT 0,
  -- Since when it is asked to drain, as it would on SIGTERM, and by whom.
  drain_asked_at timestamptz,
  drain_asked_by text,
  -- The number of handlers to run at once, instead of `concurrency`, which is its configuration's.
  requested_concurrency integer CHECK (requested_concurrency BETWEEN 1 AND 10000),
  -- By topic, how many of its messages to run at once, instead of the topic's worker_concurrency.
  topic_concurrency jsonb    NOT NULL DEFAULT '{}',
  -- Workers over HTTP are here too: by the name that its claims give, without a process that could be asked.
  kind           text        NOT NULL DEFAULT 'daemon' CHECK (kind IN ('daemon', 'http'))
) WITH (fillfactor = 50);

-- The measures of the daemons, by minute and topic: how attempts ended, and how long messages waited and handlers ran.
-- Each histogram is one number: 48 buckets of 12 decimal digits, the first bucket first (messages.pack_histogram,
-- messages.unpack_histogram). sum() adds such numbers bucket by bucket, which it cannot do with arrays: an hour of a
-- hundred topics in 2 ms instead of 50. waits: from available to claimed. runs: one entry for each call of a handler.
-- wakes: the waits of messages that came while a daemon slept and a notification woke it.
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
  -- Each daemon writes the newest minute's rows every few seconds: with room next to them those are HOT updates. Older
  -- rows are only read.
  fillfactor = 70,
  autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_threshold = 1000
);

-- The same by minute and worker, of all its topics together.
CREATE TABLE messages.worker_measure (
  minute       timestamptz NOT NULL,
  worker       text        COLLATE "C" NOT NULL,
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
  PRIMARY KEY (minute, worker)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
