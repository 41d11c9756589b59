-- The hot table: one row is one message that has not ended yet.
-- An INSERT of (topic, payload) is a full publish: every other column has a default.

-- A domain says what a column may hold, not a CHECK of the table: a domain is checked when a value is given,
-- but the CHECKs of a table are parsed and run by every statement that writes a row. As CHECKs these rules took four
-- fifths of an INSERT and a part of every claim.

-- The length has its own check: a bounded repetition like {0,199} in the pattern took half of the time of every claim.
-- The "C" collation makes the walk over topics a memcmp, and the same on every server.
CREATE DOMAIN messages.topic_name AS text COLLATE "C"
  CONSTRAINT message_topic_is_a_name
    CHECK (VALUE ~ '^[A-Za-z0-9][A-Za-z0-9._:-]*$' AND octet_length(VALUE) <= 200);
-- Channels and keys have no characters that cannot be seen. messages.is_printable has the same pattern.
CREATE DOMAIN messages.channel_name AS text COLLATE "C"
  CONSTRAINT message_channel_is_short_and_printable
    CHECK (
      VALUE !~
        E'[\\u0001-\\u001f\\u007f-\\u009f\\u00ad\\u034f\\u0600-\\u0605\\u061c\\u06dd\\u070f\\u0890-\\u0891\\u08e2'
        '\\u115f-\\u1160\\u17b4-\\u17b5\\u180b-\\u180f\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u3164'
        '\\ufe00-\\ufe0f\\ufeff\\uffa0\\ufff0-\\ufffb\\U000110bd\\U000110cd\\U00013430-\\U0001343f'
        '\\U0001bca0-\\U0001bca3\\U0001d173-\\U0001d17a\\U000e0000-\\U000e0fff]'
      AND length(VALUE) BETWEEN 1 AND 200
    );
CREATE DOMAIN messages.key_name AS text COLLATE "C"
  CONSTRAINT message_key_is_short_and_printable
    CHECK (
      VALUE !~
        E'[\\u0001-\\u001f\\u007f-\\u009f\\u00ad\\u034f\\u0600-\\u0605\\u061c\\u06dd\\u070f\\u0890-\\u0891\\u08e2'
        '\\u115f-\\u1160\\u17b4-\\u17b5\\u180b-\\u180f\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u3164'
        '\\ufe00-\\ufe0f\\ufeff\\uffa0\\ufff0-\\ufffb\\U000110bd\\U000110cd\\U00013430-\\U0001343f'
        '\\U0001bca0-\\U0001bca3\\U0001d173-\\U0001d17a\\U000e0000-\\U000e0fff]'
      AND length(VALUE) BETWEEN 1 AND 200
    );
CREATE DOMAIN messages.priority_level AS smallint
  CONSTRAINT message_priority_is_0_to_9
    CHECK (VALUE BETWEEN 0 AND 9);
-- JSON is bounded by its text, since that is how it is handed out: 2,400 bytes stored can be 1.2 GB of text.
-- A small payload is not checked here: its text has 179 MB at most, and content_bytes measures it.
CREATE DOMAIN messages.json_up_to_16_mib AS jsonb
  CONSTRAINT message_payload_fits_16_mib CHECK (
    CASE
      WHEN pg_column_size(VALUE) <= 16384 AND pg_column_compression(VALUE) IS NULL THEN true
      ELSE messages.long_number_bytes(VALUE) <= 16777216
    END);
CREATE DOMAIN messages.bytes_up_to_16_mib AS bytea
  CONSTRAINT message_body_fits_16_mib
    CHECK (octet_length(VALUE) <= 16777216);
CREATE DOMAIN messages.json_object AS jsonb
  CONSTRAINT message_headers_are_an_object CHECK (
    CASE
      WHEN VALUE IS NULL THEN true
      WHEN jsonb_typeof(VALUE) <> 'object' THEN false
      WHEN pg_column_size(VALUE) <= 16384 AND pg_column_compression(VALUE) IS NULL
        THEN octet_length(VALUE::text) <= 65536
      WHEN messages.long_number_bytes(VALUE) <= 65536 THEN octet_length(VALUE::text) <= 65536
      ELSE false
    END);
-- The values that workers give: state, progress, output. The text of a small value is never too large.
CREATE DOMAIN messages.given_json AS jsonb
  CONSTRAINT message_json_fits_16_mib CHECK (
    CASE
      WHEN pg_column_size(VALUE) <= 1024 AND pg_column_compression(VALUE) IS NULL THEN true
      ELSE messages.jsonb_text_bytes(VALUE) <= 16777216
    END);
-- 16 MiB, and 64 KiB for the headers.
CREATE DOMAIN messages.content_size AS integer
  CONSTRAINT message_contents_fit_16_mib
    CHECK (VALUE <= 16842752);
CREATE DOMAIN messages.tally AS integer
  CONSTRAINT message_attempts_are_counted
    CHECK (VALUE >= 0);
-- Settings of a message that take precedence over those of its topic. The bounds are those of the policy
-- (messages.check_policy).
CREATE DOMAIN messages.own_timeout AS interval
  CONSTRAINT message_timeout_is_1_ms_to_30_days
    CHECK (VALUE BETWEEN '1 ms' AND '30 days');
CREATE DOMAIN messages.own_backoff AS jsonb
  CONSTRAINT message_backoff_is_valid
    CHECK (CASE WHEN VALUE IS NULL THEN true ELSE (messages.check_backoff(VALUE)).problem IS NULL END);
CREATE DOMAIN messages.own_retention AS interval
  CONSTRAINT message_retention_is_1_hour_to_36500_days
    CHECK (VALUE BETWEEN '1 hour' AND '36500 days');
-- Drivers cannot represent 'infinity' or the year 10000: such a row would break every client that reads it.
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
  -- The number of runs that began: a deferral and a release return the attempt, but not the run.
  runs            messages.tally  NOT NULL DEFAULT 0,
  max_attempts    messages.tally,
  timeout         messages.own_timeout,
  backoff         messages.own_backoff,
  retention       messages.own_retention,
  -- The latest time to which further publishes of the key may move available_at; NULL = it is not debounced.
  debounce_limit  timestamptz,
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
  -- The batch that it counts in: see messages.batch.
  batch_id        bigint,
  -- The size of the message when it is handed out. It is kept in the row, so that a claim can be cut by size without
  -- writing the text again; the server fills it in, so it is right for every publisher. Without the state, which
  -- attempts write: what an UPDATE does not name is not measured again.
  content_bytes   messages.content_size GENERATED ALWAYS AS
    (coalesce(octet_length(payload::text), octet_length(body)) + coalesce(octet_length(headers::text), 0)) STORED,

  -- A lock is held entirely or not at all; a message has a payload or a body. These two look at several columns, so no
  -- domain can say them.
  CONSTRAINT message_has_payload_or_body
    CHECK (num_nonnulls(payload, body) = 1),
  CONSTRAINT message_lock_is_whole
    CHECK (num_nonnulls(claim_id, locked_by, locked_at, lock_expires_at) IN (0, 4))
)
WITH (
  -- Room on each page for the claim and the heartbeats: a heartbeat is a HOT update, since lock_expires_at is in no
  -- index.
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
-- By time, whatever the channel: whether anything in a topic's channels is due, in which of them, and when the next is.
CREATE INDEX message_due_channel ON messages.message (topic, available_at)
  WHERE claim_id IS NULL AND channel IS NOT NULL;
-- The locked rows are few: expiry scans them, limits count them.
CREATE INDEX message_locked ON messages.message (topic, channel)
  WHERE claim_id IS NOT NULL;
-- The index has the messages that will expire, for the maintenance, and none that never expires.
CREATE INDEX message_expires ON messages.message (expires_at)
  WHERE expires_at IS NOT NULL AND claim_id IS NULL;
CREATE UNIQUE INDEX message_key ON messages.message (topic, key)
  WHERE key IS NOT NULL AND attempts = 0 AND claim_id IS NULL;
-- The messages of a batch: those that wait, for their cancellation, and whether one of them runs.
CREATE INDEX message_batch ON messages.message (batch_id, claim_id)
  WHERE batch_id IS NOT NULL;
-- Messages with a key that have had an attempt and wait again: signal_key looks them up. No first claim writes it.
CREATE INDEX message_key_again ON messages.message (topic, key)
  WHERE key IS NOT NULL AND attempts > 0 AND claim_id IS NULL;

-- The row that one claim returns for one message. JSON travels as text, so that one hostile value breaks one message,
-- not the batch.
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
  lock_duration_s double precision,
  timeout_s     double precision,
  waited_s      double precision,
  elapsed_s     double precision,
  runs          integer,
  batch_id      bigint
);

-- A row of claim_with_next_due: a message as above, or, without an id, what the claim left.
CREATE TYPE messages.claimed_or_due AS (
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
  lock_duration_s double precision,
  timeout_s     double precision,
  waited_s      double precision,
  elapsed_s     double precision,
  runs          integer,
  batch_id      bigint,
  held_back     jsonb,
  next_due_s    double precision
);
