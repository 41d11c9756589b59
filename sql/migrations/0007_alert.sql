-- The outbox of alerts: a row survives a lost notification and a dead daemon. One row per topic, result and fingerprint of one statement.

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
  delivered_at      timestamptz
);
CREATE INDEX alert_undelivered ON messages.alert (id) WHERE delivered_at IS NULL;
