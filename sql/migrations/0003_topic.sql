-- One row of policy per topic; the row '*' holds the defaults. NULL in a topic's row means: as in '*'.
-- NULL in '*' means: no such limit. 0 in a count means: no limit, also where '*' has one.

CREATE TABLE messages.topic (
  topic                 text     COLLATE "C" PRIMARY KEY
    CHECK (topic = '*' OR (topic ~ '^[A-Za-z0-9][A-Za-z0-9._:-]*$' AND octet_length(topic) <= 200)),
  max_attempts          integer  CHECK (max_attempts >= 0),
  lock_for              interval CHECK (lock_for BETWEEN '100 ms' AND '7 days'),
  run_timeout           interval CHECK (run_timeout BETWEEN '1 ms' AND '30 days'),
  backoff               jsonb,
  on_lock_expired_delay interval CHECK (on_lock_expired_delay BETWEEN '0' AND '30 days'),
  strict_lock           boolean,
  ttl                   interval CHECK (ttl > '0'),
  max_depth             bigint   CHECK (max_depth >= 0),
  on_full               text     CHECK (on_full IN ('error', 'drop')),
  max_payload_bytes     integer  CHECK (max_payload_bytes BETWEEN 1 AND 16777216),
  max_concurrency       integer  CHECK (max_concurrency >= 0),
  dequeue_rate          double precision CHECK (dequeue_rate > 0),
  burst                 integer  CHECK (burst >= 1),
  publish_rate          double precision CHECK (publish_rate > 0),
  channel_concurrency   integer  CHECK (channel_concurrency >= 0),
  channel_min_interval  interval CHECK (channel_min_interval >= '0'),
  ordered               boolean,
  keep_success          text     CHECK (keep_success IN ('full', 'no_payload', 'none')),
  retention             interval CHECK (retention >= '1 hour'),
  dead_letter           boolean,
  notify                text     CHECK (notify IN ('auto', 'always', 'off')),
  paused_at             timestamptz,
  resume_at             timestamptz,
  paused_by             text,
  breaker               jsonb,
  payload_schema        jsonb,
  registered            boolean,
  updated_at            timestamptz NOT NULL DEFAULT clock_timestamp(),

  CONSTRAINT topic_defaults_are_whole CHECK (
    topic <> '*'
    OR num_nulls(lock_for, backoff, strict_lock, on_full, ordered, keep_success, retention, dead_letter, notify, registered) = 0
  )
);

INSERT INTO messages.topic
  (topic, max_attempts, lock_for, backoff, strict_lock, on_full, ordered, keep_success, retention, dead_letter, notify, registered)
VALUES
  ('*', 1, '30 s', '{"kind": "exponential", "base": "1s", "factor": 2, "cap": "10m", "jitter": "full"}',
   false, 'error', false, 'full', '30 days', false, 'auto', false);
