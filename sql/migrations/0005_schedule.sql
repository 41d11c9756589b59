-- Messages that publish themselves by the clock. The key of schedule_run is the guard against double firing, never leadership.

CREATE TABLE messages.schedule (
  name         text        COLLATE "C" PRIMARY KEY CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._:-]*$' AND octet_length(name) <= 100),
  cron         text        NOT NULL,
  time_zone    text        NOT NULL DEFAULT 'UTC',
  topic        text        COLLATE "C" NOT NULL,
  payload      jsonb       NOT NULL DEFAULT '{}',
  headers      jsonb,
  jitter       interval    NOT NULL DEFAULT '0',
  missed       text        NOT NULL DEFAULT 'once' CHECK (missed IN ('skip', 'once', 'all')),
  missed_limit integer     NOT NULL DEFAULT 100 CHECK (missed_limit BETWEEN 1 AND 10000),
  paused_at    timestamptz,
  paused_by    text,
  next_tick    timestamptz,
  created_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE messages.schedule_run (
  schedule   text        COLLATE "C" NOT NULL,
  tick       timestamptz NOT NULL,
  message_id bigint,
  fired_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (schedule, tick)
);
