-- Notes of the maintenance, and what keeps two transactions or sessions from doing the same thing at once.

-- The last run of each maintenance function, and its caller: pg_cron can stop silently, this shows it.
CREATE TABLE messages.tick_mark (
  task      text        NOT NULL,
  caller    text        NOT NULL CHECK (caller IN ('cron', 'daemon', 'web', 'hand')),
  ran_at    timestamptz NOT NULL,
  count     bigint      NOT NULL,
  PRIMARY KEY (task, caller)
) WITH (fillfactor = 50);

-- The topic at which a task of the tick that visits topics ended: the next tick continues behind this topic. '': at the
-- end of the topics.
CREATE TABLE messages.tick_cursor (
  task  text PRIMARY KEY,
  topic text COLLATE "C" NOT NULL
) WITH (fillfactor = 50);

-- Work that one transaction at a time may do locks a row here. Only the owner may lock rows of this table, and the
-- functions that run with the owner's rights: the key of an advisory lock is public, and any role that may connect can
-- hold it. A row is made when it is first asked for; no row is ever updated.
CREATE TABLE messages.mutex (
  kind text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL DEFAULT '',
  PRIMARY KEY (kind, name)
) WITH (fillfactor = 50);
INSERT INTO messages.mutex (kind)
VALUES ('armed'), ('breakers'), ('low_water'), ('policies'), ('tick'), ('update_conditions');

-- Names that one session holds at a time, for as long as it lives: exports, consumers. The session shows that it lives
-- by an advisory lock with a random key: messages.take_lease.
CREATE TABLE messages.lease (
  kind     text        COLLATE "C" NOT NULL CHECK (kind IN ('export', 'consumer')),
  name     text        COLLATE "C" NOT NULL,
  lock_key bigint      NOT NULL,
  pid      integer     NOT NULL,
  taken_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (kind, name)
);
