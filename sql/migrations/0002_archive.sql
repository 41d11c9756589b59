-- The archive: how messages ended. Insert-only: a row is never updated, which is what makes incremental readers exact.
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
  timeout           interval,
  backoff           jsonb,
  retention         interval,
  claim_id          bigint,
  locked_at         timestamptz,
  history           jsonb,
  origin_id         bigint,
  original_topic    text,
  dlq_moved_at      timestamptz,
  redriven_from     bigint,
  redrives          integer     NOT NULL DEFAULT 0,
  batch_id          bigint,
  result            text        NOT NULL
    CHECK (result IN ('success', 'rejected', 'failed', 'lock_expired', 'expired', 'cancelled')),
  error             text        CHECK (octet_length(error) <= 8192),
  error_fingerprint text,
  output            jsonb,
  handled_by        text,
  archived_at       timestamptz NOT NULL DEFAULT now(),
  -- The transaction that archived the row: readers stop at pg_snapshot_xmin, so that they miss no row and read none
  -- twice.
  archive_xid       xid8        NOT NULL DEFAULT pg_current_xact_id()
) PARTITION BY RANGE (archived_at);

-- For those who query the archive, also in the lake, which has these comments too.
COMMENT ON TABLE messages.message_archive IS 'How messages ended: a row for each message, never updated';
COMMENT ON COLUMN messages.message_archive.id IS 'identity of the message';
COMMENT ON COLUMN messages.message_archive.topic IS 'kind of the message';
COMMENT ON COLUMN messages.message_archive.channel IS 'group inside the topic, for fairness';
COMMENT ON COLUMN messages.message_archive.key IS 'deduplication key inside the topic';
COMMENT ON COLUMN messages.message_archive.priority IS '0 to 9; higher ones are claimed first';
COMMENT ON COLUMN messages.message_archive.payload IS 'JSON that the handler gets; NULL if it gets body';
COMMENT ON COLUMN messages.message_archive.body IS 'bytes that the handler gets instead of payload';
COMMENT ON COLUMN messages.message_archive.headers IS 'JSON object for programs between publisher and handler';
COMMENT ON COLUMN messages.message_archive.state IS 'checkpoint that the last retry or defer left';
COMMENT ON COLUMN messages.message_archive.progress IS 'last progress that the handler reported: done, total, unit';
COMMENT ON COLUMN messages.message_archive.created_at IS 'when it was published';
COMMENT ON COLUMN messages.message_archive.available_at IS 'from when its last attempt was possible';
COMMENT ON COLUMN messages.message_archive.expires_at IS 'when it would have ended as expired';
COMMENT ON COLUMN messages.message_archive.attempts IS 'claims, without those that defer and release returned';
COMMENT ON COLUMN messages.message_archive.runs IS 'how often a handler began to process it';
COMMENT ON COLUMN messages.message_archive.max_attempts IS 'attempts that it had at most; NULL: as its topic';
COMMENT ON COLUMN messages.message_archive.timeout IS 'time that an attempt had at most; NULL: as its topic';
COMMENT ON COLUMN messages.message_archive.backoff IS 'delay between its attempts; NULL: as its topic';
COMMENT ON COLUMN messages.message_archive.retention IS 'how long the archive keeps it; NULL: as its topic';
COMMENT ON COLUMN messages.message_archive.claim_id IS 'claim under which it ended; NULL if it was not running';
COMMENT ON COLUMN messages.message_archive.locked_at IS 'when that claim was made; NULL if it was not running';
COMMENT ON COLUMN messages.message_archive.history IS 'earlier attempts, the last 20 at most';
COMMENT ON COLUMN messages.message_archive.origin_id IS 'of a dead letter: the dead message that it represents';
COMMENT ON COLUMN messages.message_archive.original_topic IS 'of a dead letter: the topic of that message';
COMMENT ON COLUMN messages.message_archive.dlq_moved_at IS 'of a dead letter: when it was made';
COMMENT ON COLUMN messages.message_archive.redriven_from IS 'dead message that it replaces, or success that it replays';
COMMENT ON COLUMN messages.message_archive.redrives IS 'how many redrives it has been through';
COMMENT ON COLUMN messages.message_archive.batch_id IS 'batch in which it counts';
COMMENT ON COLUMN messages.message_archive.result IS 'success, rejected, failed, lock_expired, expired or cancelled';
COMMENT ON COLUMN messages.message_archive.error IS 'why it did not succeed';
COMMENT ON COLUMN messages.message_archive.error_fingerprint IS 'equal for similar errors; of dead messages only';
COMMENT ON COLUMN messages.message_archive.output IS 'what the handler returned';
COMMENT ON COLUMN messages.message_archive.handled_by IS 'worker that ended it, or user who cancelled it';
COMMENT ON COLUMN messages.message_archive.archived_at IS 'when it ended: the start of its last transaction';
COMMENT ON COLUMN messages.message_archive.archive_xid IS 'transaction that archived it';

CREATE TABLE messages.message_archive_default PARTITION OF messages.message_archive DEFAULT;

-- A table without a key that a publication names (one FOR ALL TABLES names this) refuses to delete rows, unless it has
-- this. It costs something only where wal_level is logical. Each partition has its own: see maintain_partitions.
ALTER TABLE messages.message_archive REPLICA IDENTITY FULL;
ALTER TABLE messages.message_archive_default REPLICA IDENTITY FULL;

CREATE INDEX message_archive_id  ON messages.message_archive (id);
CREATE INDEX message_archive_xid ON messages.message_archive (archive_xid, id);
CREATE INDEX message_archive_dead ON messages.message_archive (topic, archived_at, id)
  WHERE result NOT IN ('success', 'cancelled');
-- When the rows are deleted whose messages had a retention of their own: none of the others is here.
CREATE INDEX message_archive_own_end ON messages.message_archive (((archived_at AT TIME ZONE 'UTC') + retention))
  WHERE retention IS NOT NULL;
-- The default partition also has the rows that outlive their day. Those that are there for want of a partition are few.
CREATE INDEX message_archive_default_stray ON messages.message_archive_default (archived_at)
  WHERE retention IS NULL;
CREATE INDEX message_archive_batch ON messages.message_archive (batch_id, id)
  WHERE batch_id IS NOT NULL AND result NOT IN ('success', 'cancelled');

-- The facts about a message that ended which policies need.
CREATE TYPE messages.ended_message AS (
  id    bigint,
  topic text,
  key   text
);

-- The position of the batched delete of one topic's rows in one partition (topics whose retention is shorter
-- than the default's).
CREATE TABLE messages.purge_mark (
  partition text    COLLATE "C" NOT NULL,
  topic     text    COLLATE "C" NOT NULL,
  at        tid     NOT NULL DEFAULT '(0,0)',
  done      boolean NOT NULL DEFAULT false,
  PRIMARY KEY (partition, topic)
);

-- The position up to which an export has read the archive. While there is a row here the retention drops nothing above
-- its position.
CREATE TABLE messages.export_cursor (
  name              text        COLLATE "C" PRIMARY KEY CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._:-]{0,199}$'),
  -- The place that it writes to, for people, and the id of that lake.
  lake              text        NOT NULL,
  lake_id           text        NOT NULL,
  -- Transactions are counted in one cluster: in another one (a restored dump) the position says nothing.
  system_identifier text        NOT NULL,
  -- Everything up to and with this row is exported: archive_xid, id.
  xid               xid8        NOT NULL DEFAULT '0',
  id                bigint      NOT NULL DEFAULT 0,
  opened_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
  opened_by         text        NOT NULL DEFAULT session_user,
  advanced_at       timestamptz NOT NULL DEFAULT clock_timestamp()
);
