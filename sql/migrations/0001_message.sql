-- The hot table: one row is one message that has not ended yet.
-- An INSERT of (topic, payload) by anyone with the right is a full publish: every other column has a default.

-- What a column may hold is a domain, not a CHECK of the table: a domain is looked at when a value is given, the CHECKs of a table are parsed
-- and run by every statement that touches a row. As CHECKs these rules took four fifths of an INSERT, and a part of every claim.

-- The length is checked apart: a bounded repetition like {0,199} in the pattern took half of the time of every claim.
-- The "C" collation makes the walk over topics a memcmp and the same on every server.
CREATE DOMAIN messages.topic_name AS text COLLATE "C"
  CONSTRAINT message_topic_is_a_name
    CHECK (VALUE ~ '^[A-Za-z0-9][A-Za-z0-9._:-]*$' AND octet_length(VALUE) <= 200);
CREATE DOMAIN messages.channel_name AS text COLLATE "C"
  CONSTRAINT message_channel_is_short_and_printable
    CHECK (VALUE !~ '[[:cntrl:]]' AND length(VALUE) BETWEEN 1 AND 200);
CREATE DOMAIN messages.key_name AS text COLLATE "C"
  CONSTRAINT message_key_is_short_and_printable
    CHECK (VALUE !~ '[[:cntrl:]]' AND length(VALUE) BETWEEN 1 AND 200);
CREATE DOMAIN messages.priority_level AS smallint
  CONSTRAINT message_priority_is_0_to_9
    CHECK (VALUE BETWEEN 0 AND 9);
CREATE DOMAIN messages.json_up_to_16_mib AS jsonb
  CONSTRAINT message_payload_fits_16_mib
    CHECK (pg_column_size(VALUE) <= 16777216);
CREATE DOMAIN messages.bytes_up_to_16_mib AS bytea
  CONSTRAINT message_body_fits_16_mib
    CHECK (octet_length(VALUE) <= 16777216);
CREATE DOMAIN messages.json_object AS jsonb
  CONSTRAINT message_headers_are_an_object
    CHECK (jsonb_typeof(VALUE) = 'object' AND pg_column_size(VALUE) <= 65536);
CREATE DOMAIN messages.tally AS integer
  CONSTRAINT message_attempts_are_counted
    CHECK (VALUE >= 0);
-- Drivers cannot represent 'infinity' or the year 10000: a row like that would break whoever reads it.
CREATE DOMAIN messages.moment AS timestamptz
  CONSTRAINT message_times_are_finite
    CHECK (VALUE BETWEEN '1970-01-01 00:00+00' AND '9000-01-01 00:00+00');

CREATE TABLE messages.message (
  id              bigint       GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  topic           messages.topic_name NOT NULL,
  channel         messages.channel_name,
  key             messages.key_name,
  priority        messages.priority_level NOT NULL DEFAULT 5,
  payload         messages.json_up_to_16_mib,
  body            messages.bytes_up_to_16_mib,
  headers         messages.json_object,
  state           jsonb,
  progress        jsonb,
  created_at      messages.moment NOT NULL DEFAULT clock_timestamp(),
  available_at    messages.moment NOT NULL DEFAULT clock_timestamp(),
  expires_at      messages.moment,
  attempts        messages.tally  NOT NULL DEFAULT 0,
  runs            messages.tally  NOT NULL DEFAULT 0,
  max_attempts    messages.tally,
  -- True while it waits in its worker behind others: it is claimed, and no run has begun.
  prefetched      boolean,
  claim_id        bigint,
  locked_by       text,
  locked_at       timestamptz,
  lock_expires_at messages.moment,
  history         jsonb,
  origin_id       bigint,
  original_topic  text,
  dlq_moved_at    timestamptz,
  redriven_from   bigint,
  redrives        integer      NOT NULL DEFAULT 0,

  -- A lock is held entirely or not at all; a message has a payload or a body. These two look at several columns, so they are paid for.
  CONSTRAINT message_has_payload_or_body
    CHECK (num_nonnulls(payload, body) = 1),
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
-- Those that will expire, for whoever looks after them; of messages that never do it holds nothing.
CREATE INDEX message_expires ON messages.message (expires_at)
  WHERE expires_at IS NOT NULL AND claim_id IS NULL;
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
  waited_s      double precision,
  elapsed_s     double precision
);
