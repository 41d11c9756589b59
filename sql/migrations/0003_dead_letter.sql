-- Dead messages: their copies, how they are put back, and how many there ever were.

-- The live copy in <topic>.dlq that stands for a dead message (topics with dead_letter). A row outlives its copy until
-- the tick forgets it.
CREATE TABLE messages.dead_letter (
  origin_id  bigint      PRIMARY KEY,
  message_id bigint      NOT NULL,
  made_at    timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX dead_letter_made ON messages.dead_letter (made_at);

-- The decision about one dead message that is to be put back. archived_at NULL = its archive row is gone, its copy
-- stands for it.
CREATE TYPE messages.redriving AS (
  archived_id bigint,
  archived_at timestamptz,
  message_id  bigint,
  outcome     text,
  place       bigint
);

-- One row per dead message that was put back, from the archive or as its copy. The primary key is the guard: it is
-- redriven once.
CREATE TABLE messages.redrive_log (
  archived_id bigint      PRIMARY KEY,
  message_id  bigint      NOT NULL,
  redriven_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  redriven_by text        NOT NULL DEFAULT session_user
);
CREATE INDEX redrive_log_message ON messages.redrive_log (message_id);
CREATE INDEX redrive_log_time ON messages.redrive_log (redriven_at);

-- The number of messages that ever died, by topic and result, and how many of them were redriven: counters that only
-- rise, whatever becomes of the messages and of their alerts. Transactions that archive or redrive dead messages only
-- add rows, so that none waits for another; the tick folds the rows (messages.merge_dead_counts). The counts are the
-- sums of the rows. died_at: the beginning of the ten minutes in which they died; NULL = more than a day ago, in one
-- row.
CREATE TABLE messages.dead_count (
  topic    text        COLLATE "C" NOT NULL,
  result   text        NOT NULL,
  count    bigint      NOT NULL DEFAULT 0 CHECK (count >= 0),
  redriven bigint      NOT NULL DEFAULT 0 CHECK (redriven >= 0),
  died_at  timestamptz
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
-- It has no key, and a publication may name it: see message_archive.
ALTER TABLE messages.dead_count REPLICA IDENTITY FULL;
CREATE INDEX dead_count_topic ON messages.dead_count (topic, result);
CREATE INDEX dead_count_time ON messages.dead_count (died_at) WHERE died_at IS NOT NULL;
