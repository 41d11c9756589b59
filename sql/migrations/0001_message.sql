-- The hot table: one row is one message that has not ended yet.
-- An INSERT of (topic, payload) by anyone with the right is a full publish: every other column has a default.

CREATE SEQUENCE messages.claim_id AS bigint;

CREATE TABLE messages.message (
  id              bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  -- The "C" collation makes the walk over topics a memcmp and the same on every server.
  topic           text        COLLATE "C" NOT NULL,
  channel         text        COLLATE "C",
  key             text        COLLATE "C",
  priority        smallint    NOT NULL DEFAULT 5,
  payload         jsonb,
  body            bytea,
  headers         jsonb,
  state           jsonb,
  progress        jsonb,
  created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  available_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires_at      timestamptz,
  attempts        integer     NOT NULL DEFAULT 0,
  max_attempts    integer,
  claim_id        bigint,
  locked_by       text,
  locked_at       timestamptz,
  lock_expires_at timestamptz,
  history         jsonb,
  original_topic  text,
  dlq_moved_at    timestamptz,
  redriven_from   bigint,

  -- The length is checked apart: a bounded repetition like {0,199} in the pattern took half of the time of every claim.
  CONSTRAINT message_topic_is_a_name
    CHECK (topic ~ '^[A-Za-z0-9][A-Za-z0-9._:-]*$' AND octet_length(topic) <= 200),
  CONSTRAINT message_channel_is_short_and_printable
    CHECK (channel !~ '[[:cntrl:]]' AND length(channel) BETWEEN 1 AND 200),
  CONSTRAINT message_key_is_short_and_printable
    CHECK (key !~ '[[:cntrl:]]' AND length(key) BETWEEN 1 AND 200),
  CONSTRAINT message_priority_is_0_to_9
    CHECK (priority BETWEEN 0 AND 9),
  CONSTRAINT message_has_payload_or_body
    CHECK (num_nonnulls(payload, body) = 1),
  CONSTRAINT message_payload_fits_16_mib
    CHECK (pg_column_size(payload) <= 16777216 AND octet_length(body) <= 16777216),
  CONSTRAINT message_headers_are_an_object
    CHECK (jsonb_typeof(headers) = 'object' AND pg_column_size(headers) <= 65536),
  CONSTRAINT message_attempts_are_counted
    CHECK (attempts >= 0 AND max_attempts >= 0),
  -- Drivers cannot represent 'infinity' or the year 10000: a row like that would break whoever reads it.
  CONSTRAINT message_times_are_finite
    CHECK (available_at BETWEEN '1970-01-01 00:00+00' AND '9000-01-01 00:00+00'
       AND created_at   BETWEEN '1970-01-01 00:00+00' AND '9000-01-01 00:00+00'
       AND expires_at   BETWEEN '1970-01-01 00:00+00' AND '9000-01-01 00:00+00'
       AND lock_expires_at BETWEEN '1970-01-01 00:00+00' AND '9000-01-01 00:00+00'),
  -- A lock is held entirely or not at all.
  CONSTRAINT message_lock_is_whole
    CHECK (num_nonnulls(claim_id, locked_by, locked_at, lock_expires_at) IN (0, 4))
)
WITH (
  -- Room on each page for the claim and the heartbeats: the heartbeat is a HOT update, since lock_expires_at is in no index.
  fillfactor = 75,
  -- Every message leaves two dead rows; vacuum by count, not by share of a table that is usually almost empty.
  autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_insert_scale_factor = 0,
  autovacuum_vacuum_insert_threshold = 100000,
  autovacuum_analyze_scale_factor = 0,
  autovacuum_analyze_threshold = 10000,
  autovacuum_vacuum_cost_delay = 0,
  toast.autovacuum_vacuum_scale_factor = 0,
  toast.autovacuum_vacuum_threshold = 5000,
  toast.autovacuum_vacuum_cost_delay = 0
);

-- Claims read these two from the left edge (or from messages.low_water).
CREATE INDEX message_ready ON messages.message (topic, priority, available_at, id)
  WHERE claim_id IS NULL AND channel IS NULL;
CREATE INDEX message_ready_channel ON messages.message (topic, channel, priority, available_at, id)
  WHERE claim_id IS NULL AND channel IS NOT NULL;
-- The locked rows are few: expiry scans them, limits count them.
CREATE INDEX message_locked ON messages.message (topic, channel)
  WHERE claim_id IS NOT NULL;
CREATE UNIQUE INDEX message_key ON messages.message (topic, key)
  WHERE key IS NOT NULL AND attempts = 0 AND claim_id IS NULL;

-- What one claim hands out for one message. JSON travels as text, so that one hostile value breaks one message, not the batch.
CREATE TYPE messages.claimed AS (
  id            bigint,
  claim_id      bigint,
  topic         text,
  channel       text,
  key           text,
  priority      smallint,
  attempt       integer,
  max_attempts  integer,
  payload       text,
  body          bytea,
  headers       text,
  state         text,
  lock_for_s    double precision,
  run_timeout_s double precision,
  waited_s      double precision
);
