-- Topics: the policy of each, and who else gets what is published to it.

-- One row of policy per topic, or per pattern of topics (orders.*, orders.**); the row '*' holds the defaults. NULL in
-- a topic's row means: as in the row of the most specific pattern of the topic that sets it, else as in '*'.
-- NULL in '*' means: no such limit. 0 in a count means: no limit, also where '*' has one. The trigger check_topic
-- refuses what a setting cannot be (messages.check_policy).
CREATE TABLE messages.topic (
  topic                 text     COLLATE "C" PRIMARY KEY
    CHECK (
      topic ~ '^([A-Za-z0-9][A-Za-z0-9._:-]*|([A-Za-z0-9][A-Za-z0-9._:-]*[.])?[*][*]?)$'
      AND octet_length(topic) <= 200),
  max_attempts          integer,
  lock_duration         interval,
  timeout               interval,
  backoff               jsonb,
  lock_expired_delay    interval,
  strict_lock           boolean,
  key_ttl               interval,
  key_on_retry          text,
  ttl                   interval,
  max_depth             bigint,
  on_full               text,
  max_payload_bytes     integer,
  max_concurrency       integer,
  worker_concurrency    integer,
  dequeue_rate          double precision,
  burst                 integer,
  publish_rate          double precision,
  channel_concurrency   integer,
  channel_min_interval  interval,
  ordered               boolean,
  archive_success       text,
  retention             interval,
  dead_letter           boolean,
  max_redrives          integer,
  notify                text,
  paused_at             timestamptz,
  resume_at             timestamptz,
  paused_by             text,
  paused_reason         text,
  breaker               jsonb,
  payload_schema        jsonb,
  accept_publishes      boolean,
  updated_at            timestamptz NOT NULL DEFAULT clock_timestamp()
);

INSERT INTO messages.topic
  (topic, max_attempts, lock_duration, backoff, strict_lock, key_on_retry, on_full, ordered, archive_success,
    retention, dead_letter, max_redrives,
   notify, accept_publishes)
VALUES
  ('*', 1, '30 s', '{"kind": "exponential", "base": "1s", "factor": 2, "cap": "10m", "jitter": "full"}',
   false, 'supersede', 'error', false, 'full', '30 days', false, 10, 'auto', true);

-- This index tells whether any topic keeps less than everything: each end of messages asks that.
CREATE INDEX topic_archive_success ON messages.topic (topic) WHERE archive_success <> 'full';

-- The settings that topics inherit, ready to be read: for each pattern with a policy its row over those of less
-- specific patterns and over the row '*', and the row '*' itself. The pause of a row here is the one of them that lasts
-- longest. Written by messages.inherit_policies whenever a policy changes; messages.inherits_from says which row a
-- topic inherits.
CREATE TABLE messages.inherited_policy (LIKE messages.topic, PRIMARY KEY (topic));
INSERT INTO messages.inherited_policy SELECT t.* FROM messages.topic AS t;

-- This sequence tells whether any pattern has a policy or a subscriber: 1 = none has. A sequence, for the reasons of
-- messages.policy_topic_bits. It is raised before the change is committed, and lowered by the tick.
CREATE SEQUENCE messages.pattern_flag AS smallint;
SELECT setval('messages.pattern_flag', 1);

-- The policy of one topic at one moment: its own row over the one that it inherits. NULL in a limit = no such limit.
CREATE TYPE messages.policy AS (
  topic                text,
  max_attempts         integer,
  lock_duration             interval,
  timeout          interval,
  stopped_until        timestamptz,
  max_concurrency      integer,
  worker_concurrency   integer,
  dequeue_rate         double precision,
  burst                integer,
  probes               integer,
  channel_concurrency  integer,
  channel_min_interval interval,
  ordered              boolean,
  is_limited           boolean,
  limits_channels      boolean
);

-- The topics that use a policy which publishing or settling has to look at, as a set of bits: bits 1 to 62 stand for
-- the topics with this hash, bit 0 is always set. The policies of a topic are looked up only where its bit is set, so
-- that the policies of one topic cost others next to nothing. A sequence, since reading one costs next to nothing and
-- needs no snapshot; no publisher can write it. A bit is set before the policy is committed, and cleared by the tick
-- once no such policy is left.
CREATE SEQUENCE messages.policy_topic_bits AS bigint;
SELECT setval('messages.policy_topic_bits', 1);

-- A name of a topic, or a pattern like orders.* and orders.**.
CREATE DOMAIN messages.topic_or_pattern AS text COLLATE "C"
  CONSTRAINT topic_or_pattern_is_a_name CHECK (
    VALUE ~ '^([A-Za-z0-9][A-Za-z0-9._:-]*|([A-Za-z0-9][A-Za-z0-9._:-]*[.])?[*][*]|[A-Za-z0-9][A-Za-z0-9._:-]*[.][*])$'
    AND octet_length(VALUE) <= 200);

-- Fan-out: what is published to a topic becomes one ordinary message in the topic of each of its subscribers.
-- A topic may subscribe to itself; then its own handlers work the message as well. The topic that is subscribed to may
-- be a pattern.
CREATE TABLE messages.subscription (
  topic      messages.topic_or_pattern NOT NULL,
  subscriber messages.topic_name NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  created_by text        NOT NULL DEFAULT session_user,
  PRIMARY KEY (topic, subscriber)
);
