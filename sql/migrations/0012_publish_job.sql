-- Bulk publishing: many connections stage rows, then one transaction publishes them all, once for each key of a job.

-- The primary key is the guard: a job publishes once. It is deleted when no client will repeat it any more, see
-- messages.prune_jobs.
CREATE TABLE messages.publish_job (
  job          messages.key_name PRIMARY KEY,
  published    bigint      NOT NULL DEFAULT 0,
  ignored      bigint      NOT NULL DEFAULT 0,
  dropped      bigint      NOT NULL DEFAULT 0,
  rejected     bigint      NOT NULL DEFAULT 0,
  published_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  published_by text        NOT NULL DEFAULT session_user
);
CREATE INDEX publish_job_time ON messages.publish_job (published_at);

-- The rows of a job that were not published: what was given, and what is wrong with it.
CREATE TABLE messages.publish_rejected (
  job    messages.key_name NOT NULL,
  nth    bigint      NOT NULL,
  reason text        NOT NULL,
  given  jsonb       NOT NULL,
  PRIMARY KEY (job, nth)
);

-- One row per task that stages, and per repetition of it: only those that the job names in the end are published.
-- Unlogged like the stage: a crash of the server empties both, and the job finds its attempts missing.
CREATE UNLOGGED TABLE messages.publish_attempt (
  attempt   uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
  job       messages.key_name NOT NULL,
  staged_by text        NOT NULL DEFAULT session_user,
  staged_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX publish_attempt_time ON messages.publish_attempt (staged_at);

-- The table into which COPY puts rows until their job publishes them. The domains are those of messages.message: what
-- is here fits there, and is not checked again; JSON is parsed by as many connections as stage. A row with a reason is
-- one that was rejected before it came here.
CREATE UNLOGGED TABLE messages.publish_stage (
  attempt      uuid NOT NULL,
  topic        messages.topic_name,
  channel      messages.channel_name,
  key          messages.key_name,
  priority     messages.priority_level NOT NULL DEFAULT 5,
  payload      messages.json_up_to_16_mib,
  body         messages.bytes_up_to_16_mib,
  headers      messages.json_object,
  delay        interval,
  available_at messages.moment,
  ttl          interval,
  expires_at   messages.moment,
  max_attempts messages.tally,
  timeout      messages.own_timeout,
  backoff      messages.own_backoff,
  retention    messages.own_retention,
  batch_id     bigint,
  on_conflict  text,
  reason       text,
  given        messages.json_up_to_16_mib,

  CONSTRAINT publish_stage_reason_is_short
    CHECK (length(reason) <= 1000),
  CONSTRAINT publish_stage_given_has_a_reason
    CHECK (given IS NULL OR reason IS NOT NULL),
  CONSTRAINT publish_stage_is_a_message
    CHECK (reason IS NOT NULL OR (topic IS NOT NULL AND num_nonnulls(payload, body) = 1 AND right(topic, 4) <> '.dlq')),
  CONSTRAINT publish_stage_waits_are_bounded
    CHECK (delay BETWEEN '0' AND '36500 days' AND ttl BETWEEN '0' AND '36500 days'),
  CONSTRAINT publish_stage_times_are_single
    CHECK (num_nonnulls(delay, available_at) < 2 AND num_nonnulls(ttl, expires_at) < 2),
  CONSTRAINT publish_stage_conflicts_are_known
    CHECK (on_conflict IS NULL OR on_conflict = 'error'
      OR (
        on_conflict IN ('replace', 'ignore', 'append') AND key IS NOT NULL AND (on_conflict <> 'append' OR body IS NULL)
      ))
);
CREATE INDEX publish_stage_attempt ON messages.publish_stage (attempt);
