-- Alerts: what is wrong at this moment, the outbox of what was raised, the sinks that it is sent to, and who wants
-- silence.

-- The outbox: a row survives a lost notification and a dead daemon. One row per topic, result and fingerprint of one
-- statement.
CREATE TABLE messages.alert (
  id                bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  kind              text        NOT NULL DEFAULT 'dead_message',
  topic             text        COLLATE "C",
  result            text,
  error_fingerprint text,
  count             bigint      NOT NULL DEFAULT 1 CHECK (count > 0),
  first_message_id  bigint,
  last_message_id   bigint,
  sample_error      text,
  raised_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
  delivered_at      timestamptz,
  -- The transaction that wrote it. Ids are drawn before the commit: a reader of "all above the last id" would skip what
  -- commits late.
  xid               xid8        DEFAULT pg_current_xact_id(),
  -- The fix, where it is known: conditions have one.
  fix              text
);
CREATE INDEX alert_undelivered ON messages.alert (id) WHERE delivered_at IS NULL;
CREATE INDEX alert_xid ON messages.alert (xid);

-- One row per place that alerts are sent to. It makes a sink independent of every other: its position in the outbox,
-- its deliverer, its pace.
CREATE TABLE messages.alert_sink (
  name              text        COLLATE "C" PRIMARY KEY CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$'),
  type              text        NOT NULL,
  -- Every alert that is visible in this snapshot belongs to an incident, or is not for this sink; NULL = the sink is
  -- new.
  position          pg_snapshot,
  -- Transactions are counted in one cluster: in another one (a restored dump) the position says nothing.
  system_identifier text,
  -- The lease of the one that delivers: its name, until when unless it is extended, its server process, and the number
  -- that fences off earlier ones.
  held_by           text,
  held_until        timestamptz,
  held_backend      integer,
  fence             bigint      NOT NULL DEFAULT 0,
  -- The pace: when the next message would be due if they came evenly.
  paced_at          timestamptz,
  first_seen_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  seen_at           timestamptz NOT NULL DEFAULT clock_timestamp(),
  delivered_at      timestamptz,
  failing_since     timestamptz,
  failures          integer     NOT NULL DEFAULT 0,
  last_error        text
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);

-- The alerts of one group, which belong together for a sink. count: messages since the group began; pending: those that
-- no notification has reported yet.
CREATE TABLE messages.alert_incident (
  sink              text        COLLATE "C" NOT NULL REFERENCES messages.alert_sink ON DELETE CASCADE,
  grouped           text        COLLATE "C" NOT NULL,
  kind              text        NOT NULL,
  topic             text        COLLATE "C",
  result            text,
  error_fingerprint text,
  state             text        NOT NULL CHECK (state IN ('firing', 'resolved', 'over')),
  first_at          timestamptz NOT NULL,
  last_at           timestamptz NOT NULL,
  count             bigint      NOT NULL,
  pending           bigint      NOT NULL,
  silenced          bigint      NOT NULL DEFAULT 0,
  notifications     integer     NOT NULL DEFAULT 0,
  notified_at       timestamptz,
  escalated_at      timestamptz,
  -- The time at which the next message about it is due; NULL = there is nothing to say.
  due_at            timestamptz,
  first_alert_id    bigint      NOT NULL,
  last_alert_id     bigint      NOT NULL,
  first_message_id  bigint,
  last_message_id   bigint,
  sample_error      text,
  fix              text,
  PRIMARY KEY (sink, grouped)
) WITH (fillfactor = 70);
CREATE INDEX alert_incident_due ON messages.alert_incident (sink, due_at) WHERE due_at IS NOT NULL;

-- The messages that sinks are sent, each kept as it is until it has arrived: repeated it is the same, with the same id.
CREATE TABLE messages.alert_delivery (
  id             uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
  sink           text        COLLATE "C" NOT NULL REFERENCES messages.alert_sink ON DELETE CASCADE,
  seq            bigint      GENERATED ALWAYS AS IDENTITY,
  message        jsonb       NOT NULL,
  -- The alerts that it tells of: those of this range that the rules want and that belong to these groups.
  rules          jsonb       NOT NULL,
  grouped        text[]      NOT NULL,
  first_alert_id bigint      NOT NULL,
  last_alert_id  bigint      NOT NULL,
  created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  attempts       integer     NOT NULL DEFAULT 0,
  retry_at       timestamptz,
  last_error     text,
  delivered_at   timestamptz,
  -- Given up: the sink refused it again and again, or it grew too old. A replay sends it once more.
  abandoned_at   timestamptz,
  replay_of      uuid
) WITH (fillfactor = 70);
CREATE INDEX alert_delivery_open ON messages.alert_delivery (sink, seq)
  WHERE delivered_at IS NULL AND abandoned_at IS NULL;
CREATE INDEX alert_delivery_time ON messages.alert_delivery (created_at);

-- The alerts that are not to be sent for a while; NULL and * match everything, * stands for any characters of a topic.
CREATE TABLE messages.silence (
  id                bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  kind              text,
  topic             text        COLLATE "C",
  error_fingerprint text,
  until             timestamptz NOT NULL,
  reason               text,
  created_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
  created_by        text        NOT NULL DEFAULT session_user,
  ended_at          timestamptz,
  CONSTRAINT silence_says_what CHECK (num_nonnulls(kind, topic, error_fingerprint) > 0)
);
CREATE INDEX silence_until ON messages.silence (until) WHERE ended_at IS NULL;

-- The conditions that hold at this moment, and those that ended in the last week. count: how many messages it is about,
-- of one that ended when it was last counted; NULL = it is not about messages, or not counted yet. notified_at: when an
-- alert was raised for it; a breaker raises its own.
CREATE TABLE messages.condition (
  id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  kind        text        NOT NULL,
  topic       text        COLLATE "C" NOT NULL DEFAULT '',
  since       timestamptz NOT NULL,
  ended_at    timestamptz,
  count       bigint,
  what        text        NOT NULL,
  fix         text        NOT NULL,
  notified_at timestamptz
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX condition_open ON messages.condition (kind, topic) WHERE ended_at IS NULL;
CREATE INDEX condition_ended ON messages.condition (ended_at) WHERE ended_at IS NOT NULL;

-- From when on something is wrong. The row * has the defaults, and what is about no topic; NULL inherits, 0 switches
-- the threshold off.
CREATE TABLE messages.alert_threshold (
  topic            text     COLLATE "C" PRIMARY KEY CHECK (
    topic = '*' OR topic ~ '^[A-Za-z0-9][A-Za-z0-9._:-]{0,199}$'),
  backlog_age      interval CHECK (backlog_age BETWEEN '0' AND '3650 days'),
  no_worker_for    interval CHECK (no_worker_for BETWEEN '0' AND '3650 days'),
  dead_per_hour    integer  CHECK (dead_per_hour BETWEEN 0 AND 100000),
  listener_for     interval CHECK (listener_for BETWEEN '0' AND '3650 days'),
  cron_age         interval CHECK (cron_age BETWEEN '0' AND '3650 days'),
  snapshot_age     interval CHECK (snapshot_age BETWEEN '0' AND '3650 days'),
  undelivered_for  interval CHECK (undelivered_for BETWEEN '0' AND '3650 days'),
  min_workers      integer CHECK (min_workers BETWEEN 0 AND 100000),
  CONSTRAINT alert_threshold_defaults_are_whole CHECK (topic <> '*' OR num_nulls(
    backlog_age, no_worker_for, dead_per_hour, listener_for, cron_age, snapshot_age, undelivered_for,
    min_workers) = 0),
  CONSTRAINT alert_threshold_of_a_topic_is_about_it CHECK (
    topic = '*' OR num_nonnulls(listener_for, cron_age, snapshot_age, undelivered_for, min_workers) = 0)
);
INSERT INTO messages.alert_threshold (
  topic, backlog_age, no_worker_for, dead_per_hour, listener_for, cron_age, snapshot_age, undelivered_for, min_workers)
VALUES ('*', '15 minutes', '5 minutes', 100, '1 minute', '5 minutes', '1 hour', '15 minutes', 1);
