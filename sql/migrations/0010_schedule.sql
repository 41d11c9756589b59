-- Messages that publish themselves by the clock. The key of schedule_run is the guard against double firing, never
-- leadership.

-- A BEFORE trigger checks the values and says what is wrong with them; the CHECKs here are what nothing gets around.
-- declared_by: the file, settings, module or application whose configuration has it, which removes it when that has it
-- no more; NULL = made by hand. next_tick: the first tick that was not looked at yet. Whatever is due is found by it;
-- NULL = no tick will ever come.
CREATE TABLE messages.schedule (
  name            text        COLLATE "C" PRIMARY KEY CHECK (
    name ~ '^[A-Za-z0-9][A-Za-z0-9._:-]*$' AND octet_length(name) <= 100),
  cron            text        NOT NULL,
  time_zone       text        NOT NULL DEFAULT 'UTC',
  topic           text        COLLATE "C" NOT NULL,
  channel         text        COLLATE "C",
  key             text        COLLATE "C",
  priority        smallint    NOT NULL DEFAULT 5 CHECK (priority BETWEEN 0 AND 9),
  -- Settings of its messages that take precedence over those of the topic; messages.check_own_policy checks them.
  max_attempts    integer     CHECK (max_attempts >= 0),
  timeout         interval    CHECK (timeout BETWEEN '1 ms' AND '30 days'),
  backoff         jsonb       CHECK (backoff IS NULL OR (messages.check_backoff(backoff)).problem IS NULL),
  retention       interval    CHECK (retention BETWEEN '1 hour' AND '36500 days'),
  payload         jsonb       NOT NULL DEFAULT '{}',
  headers         jsonb       CHECK (jsonb_typeof(headers) = 'object'),
  jitter          interval    NOT NULL DEFAULT '0' CHECK (jitter BETWEEN '0' AND '1 day'),
  missed          text        NOT NULL DEFAULT 'once' CHECK (missed IN ('skip', 'once', 'all')),
  missed_limit    integer     NOT NULL DEFAULT 100 CHECK (missed_limit BETWEEN 1 AND 1000),
  while_paused    text        NOT NULL DEFAULT 'publish' CHECK (while_paused IN ('publish', 'skip')),
  paused_at       timestamptz,
  paused_by       text,
  paused_reason      text,
  next_tick       timestamptz,
  last_tick       timestamptz,
  last_message_id bigint,
  last_fired_at   timestamptz,
  last_error      text,
  failed_at       timestamptz,
  failures        integer     NOT NULL DEFAULT 0,
  retry_at        timestamptz,
  created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  created_by      text        NOT NULL DEFAULT session_user,
  declared_by     text
) WITH (fillfactor = 50);
CREATE INDEX schedule_due ON messages.schedule (next_tick) WHERE paused_at IS NULL;

-- outcome: published = a message was made; ignored, held = the one that message_id names stands for it, having its key;
-- dropped = the topic is full and drops; missed = left out, as the schedule's policy for missed ticks says;
-- paused = left out, because the topic was paused and the schedule's while_paused is skip.
-- missed_from: the first of the ticks that were left out before this one.
CREATE TABLE messages.schedule_run (
  schedule    text        COLLATE "C" NOT NULL REFERENCES messages.schedule (name) ON UPDATE CASCADE ON DELETE CASCADE,
  tick        timestamptz NOT NULL,
  outcome     text        NOT NULL CHECK (
    outcome IN ('published', 'ignored', 'held', 'dropped', 'missed', 'paused')),
  message_id  bigint,
  missed_from timestamptz,
  fired_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  run_by      text,
  PRIMARY KEY (schedule, tick)
);
