-- How messages ended. Insert-only: a row is never updated, which is what makes incremental readers exact.
-- Partitioned by day of archived_at; the default partition catches what has no day yet, so that no settle ever fails.

CREATE TABLE messages.message_archive (
  id                bigint      NOT NULL,
  topic             text        COLLATE "C" NOT NULL,
  channel           text        COLLATE "C",
  key               text        COLLATE "C",
  priority          smallint    NOT NULL,
  payload           jsonb,
  body              bytea,
  headers           jsonb,
  state             jsonb,
  progress          jsonb,
  created_at        timestamptz NOT NULL,
  available_at      timestamptz NOT NULL,
  expires_at        timestamptz,
  attempts          integer     NOT NULL,
  runs              integer     NOT NULL DEFAULT 0,
  max_attempts      integer,
  claim_id          bigint,
  locked_at         timestamptz,
  history           jsonb,
  origin_id         bigint,
  original_topic    text,
  dlq_moved_at      timestamptz,
  redriven_from     bigint,
  redrives          integer     NOT NULL DEFAULT 0,
  result            text        NOT NULL
    CHECK (result IN ('success', 'rejected', 'failed', 'lock_expired', 'expired', 'cancelled')),
  error             text        CHECK (octet_length(error) <= 8192),
  error_fingerprint text,
  output            jsonb,
  handled_by        text,
  archived_at       timestamptz NOT NULL DEFAULT now(),
  -- The transaction that archived the row: readers cut at pg_snapshot_xmin, so that none is missed and none is read twice.
  archive_xid       xid8        NOT NULL DEFAULT pg_current_xact_id()
) PARTITION BY RANGE (archived_at);

CREATE TABLE messages.message_archive_default PARTITION OF messages.message_archive DEFAULT;

CREATE INDEX message_archive_id  ON messages.message_archive (id);
CREATE INDEX message_archive_xid ON messages.message_archive (archive_xid, id);
CREATE INDEX message_archive_dead ON messages.message_archive (topic, archived_at, id)
  WHERE result NOT IN ('success', 'cancelled');

-- What the policies must know of a message that ended.
CREATE TYPE messages.departed AS (
  id    bigint,
  topic text,
  key   text
);

-- How far the batched delete of one topic's rows has come in one partition (topics whose retention is shorter than the default's).
CREATE TABLE messages.purge_mark (
  partition text    COLLATE "C" NOT NULL,
  topic     text    COLLATE "C" NOT NULL,
  at        tid     NOT NULL DEFAULT '(0,0)',
  done      boolean NOT NULL DEFAULT false,
  PRIMARY KEY (partition, topic)
);

-- Which live copy in <topic>.dlq stands for a dead message (topics with dead_letter). A row outlives its copy until the tick forgets it.
CREATE TABLE messages.dead_letter (
  origin_id  bigint      PRIMARY KEY,
  message_id bigint      NOT NULL,
  made_at    timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX dead_letter_made ON messages.dead_letter (made_at);

-- What is decided about one dead message that shall be put back. archived_at NULL = its archive row is gone, its copy stands for it.
CREATE TYPE messages.redriving AS (
  archived_id bigint,
  archived_at timestamptz,
  message_id  bigint,
  outcome     text,
  place       bigint
);

-- One row per dead message that was put back, from the archive or as its copy. The primary key is the guard: it is redriven once.
CREATE TABLE messages.redrive_log (
  archived_id bigint      PRIMARY KEY,
  message_id  bigint      NOT NULL,
  redriven_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  redriven_by text        NOT NULL DEFAULT session_user
);
CREATE INDEX redrive_log_message ON messages.redrive_log (message_id);
CREATE INDEX redrive_log_time ON messages.redrive_log (redriven_at);
