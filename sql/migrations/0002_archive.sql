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
