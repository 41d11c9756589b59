-- Who works: the registry of daemons, and which of them sleep.

CREATE TABLE messages.worker (
  name        text        PRIMARY KEY,
  host        text        NOT NULL,
  pid         integer     NOT NULL,
  version     text        NOT NULL,
  topics      text[]      NOT NULL,
  concurrency integer     NOT NULL,
  started_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  seen_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  stopping    boolean     NOT NULL DEFAULT false,
  status      jsonb       NOT NULL DEFAULT '{}'
) WITH (fillfactor = 50);

-- The armed sleepers. A publish rings only while a row here asks for its topic and would otherwise look later than the row is due.
-- topics NULL = every topic. The row '*' stands for the listeners outside (topics with notify = 'always'): they never look by themselves.
-- Logged, but armed with synchronous_commit = off: the row '*' must survive a crash, and no flush is paid either way.
CREATE TABLE messages.sleeper (
  worker       text        PRIMARY KEY,
  topics       text[],
  armed_until  timestamptz NOT NULL,
  next_look_at timestamptz NOT NULL
) WITH (
  fillfactor = 20,
  autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold = 100,
  autovacuum_vacuum_cost_delay = 0
);

-- Until when somebody may be armed, in seconds since 1970: the latest armed_until that was ever written. A publish reads this first.
-- A sequence, since reading one costs next to nothing and needs no snapshot; raised with the flag, before the xid that proves the sleep is taken; never lowered.
CREATE SEQUENCE messages.armed AS bigint;
SELECT setval('messages.armed', 1);

-- Every (topic, priority) that was ever claimed from. at: the position below which it has no ready row; NULL = read from the left edge.
CREATE TABLE messages.low_water (
  topic    text        COLLATE "C" NOT NULL,
  priority smallint    NOT NULL,
  at       timestamptz,
  PRIMARY KEY (topic, priority)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);

-- One row: the time up to which marks may be raised (safe_at), and the next such time (at), which counts once every transaction
-- older than xid has ended.
CREATE TABLE messages.low_water_mark (
  only_row    boolean     PRIMARY KEY DEFAULT true CHECK (only_row),
  safe_at     timestamptz NOT NULL DEFAULT 'epoch',
  at          timestamptz NOT NULL DEFAULT 'epoch',
  xid         xid8        NOT NULL DEFAULT '0',
  next_run_at timestamptz NOT NULL DEFAULT 'epoch'
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);
INSERT INTO messages.low_water_mark DEFAULT VALUES;

-- When each maintenance function last ran, and who called it: pg_cron can stop silently, this shows it.
CREATE TABLE messages.tick_mark (
  task      text        NOT NULL,
  caller    text        NOT NULL CHECK (caller IN ('cron', 'daemon', 'hand')),
  ran_at    timestamptz NOT NULL,
  did       bigint      NOT NULL,
  PRIMARY KEY (task, caller)
) WITH (fillfactor = 50);
