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
  max_attempts      integer,
  claim_id          bigint,
  locked_at         timestamptz,
  history           jsonb,
  original_topic    text,
  dlq_moved_at      timestamptz,
  redriven_from     bigint,
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
CREATE INDEX message_archive_dead ON messages.message_archive (topic, archived_at)
  WHERE result NOT IN ('success', 'cancelled');

-- One row per archived message that was put back. The primary key is the guard: a dead message is redriven once.
CREATE TABLE messages.redrive_log (
  archived_id bigint      PRIMARY KEY,
  message_id  bigint      NOT NULL,
  redriven_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  redriven_by text        NOT NULL DEFAULT session_user
);
CREATE INDEX redrive_log_message ON messages.redrive_log (message_id);
