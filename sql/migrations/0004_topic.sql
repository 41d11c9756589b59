-- Topics: the policy of each, and who else gets what is published to it.

-- One row of policy per topic; the row '*' holds the defaults. NULL in a topic's row means: as in '*'.
-- NULL in '*' means: no such limit. 0 in a count means: no limit, also where '*' has one.
CREATE TABLE messages.topic (
  topic                 text     COLLATE "C" PRIMARY KEY
    CHECK (topic = '*' OR (topic ~ '^[A-Za-z0-9][A-Za-z0-9._:-]*$' AND octet_length(topic) <= 200)),
  max_attempts          integer  CHECK (max_attempts >= 0),
  lock_duration              interval CHECK (lock_duration BETWEEN '100 ms' AND '7 days'),
  timeout           interval CHECK (timeout BETWEEN '1 ms' AND '30 days'),
  backoff               jsonb,
  lock_expired_delay interval CHECK (lock_expired_delay BETWEEN '0' AND '30 days'),
  strict_lock           boolean,
  key_ttl               interval CHECK (key_ttl BETWEEN '0' AND '365 days'),
  key_on_retry             text     CHECK (key_on_retry IN ('supersede', 'keep')),
  ttl                   interval CHECK (ttl BETWEEN '0' AND '3650 days'),
  max_depth             bigint   CHECK (max_depth >= 0),
  on_full               text     CHECK (on_full IN ('error', 'drop')),
  max_payload_bytes     integer  CHECK (max_payload_bytes BETWEEN 1 AND 16777216),
  max_concurrency       integer  CHECK (max_concurrency >= 0),
  dequeue_rate          double precision CHECK (dequeue_rate BETWEEN 0 AND 1000000),
  burst                 integer  CHECK (burst BETWEEN 1 AND 1000000),
  publish_rate          double precision CHECK (publish_rate BETWEEN 0 AND 1000000),
  channel_concurrency   integer  CHECK (channel_concurrency >= 0),
  channel_min_interval  interval CHECK (channel_min_interval BETWEEN '0' AND '30 days'),
  ordered               boolean,
  archive_success          text     CHECK (archive_success IN ('full', 'no_payload', 'none')),
  retention             interval CHECK (retention >= '1 hour'),
  dead_letter           boolean,
  max_redrives          integer  CHECK (max_redrives >= 0),
  notify                text     CHECK (notify IN ('auto', 'always', 'off')),
  paused_at             timestamptz,
  resume_at             timestamptz,
  paused_by             text,
  paused_reason            text,
  breaker               jsonb,
  payload_schema        jsonb,
  registered            boolean,
  updated_at            timestamptz NOT NULL DEFAULT clock_timestamp(),

  CONSTRAINT topic_defaults_are_whole CHECK (
    topic <> '*'
    OR num_nulls(
      lock_duration, backoff, strict_lock, key_on_retry, on_full, ordered, archive_success, retention, dead_letter, max_redrives, notify, registered) = 0
  )
);

INSERT INTO messages.topic
  (topic, max_attempts, lock_duration, backoff, strict_lock, key_on_retry, on_full, ordered, archive_success, retention, dead_letter, max_redrives,
   notify, registered)
VALUES
  ('*', 1, '30 s', '{"kind": "exponential", "base": "1s", "factor": 2, "cap": "10m", "jitter": "full"}',
   false, 'supersede', 'error', false, 'full', '30 days', false, 10, 'auto', false);

-- What holds for one topic at one moment: its own row over the row '*'. NULL in a limit = no such limit.
CREATE TYPE messages.policy AS (
  topic                text,
  max_attempts         integer,
  lock_duration             interval,
  timeout          interval,
  stopped_until        timestamptz,
  max_concurrency      integer,
  dequeue_rate         double precision,
  burst                integer,
  probes               integer,
  channel_concurrency  integer,
  channel_min_interval interval,
  ordered              boolean,
  is_limited           boolean,
  limits_channels      boolean
);

-- Whether any topic uses a policy that publishing or settling has to look at: 2 = some may, else none does. A sequence, since reading one
-- costs next to nothing and needs no snapshot: a queue without policies pays nothing for them. It is raised before the policy is committed,
-- and lowered by the tick once no such policy is left.
CREATE SEQUENCE messages.policy_flag AS smallint;
SELECT setval('messages.policy_flag', 1);

-- Which topics use a policy that publishing has to look at, as a set of bits: bits 1 to 62 stand for the topics with this hash, bit 0 is
-- always set. The trigger admit_message looks up the policy of a row only where the bit of its topic is set, so that the policies of one topic cost
-- the rows of others nothing. It is kept as messages.policy_flag is; no publisher can write it.
CREATE SEQUENCE messages.policy_topic_bits AS bigint;
SELECT setval('messages.policy_topic_bits', 1);

-- Fan-out: what is published to a topic becomes one ordinary message in the topic of each of its subscribers.
-- A topic may subscribe to itself; then its own handlers work the message as well.
CREATE TABLE messages.subscription (
  topic      messages.topic_name NOT NULL,
  subscriber messages.topic_name NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  created_by text        NOT NULL DEFAULT session_user,
  PRIMARY KEY (topic, subscriber)
);
