-- The objects that the handlers of this folder need in addition to the schema `messages`: their own table, and the
-- policies of their topics. A topic without a row in messages.topic has the policy of the row '*': one attempt, a lock
-- of 30 s.

-- This comes before any name, so that objects of other roles in a schema of the path are not used.
SET search_path = pg_catalog, pg_temp;

CREATE SCHEMA demo;

-- One row per file, made in the transaction that publishes its message; the handler fills it in the transaction that
-- completes the message.
CREATE TABLE demo.file (
  path         text    PRIMARY KEY,
  message_id   bigint  NOT NULL,
  sha256       bytea,
  bytes        bigint,
  lines        bigint,
  words        jsonb,
  times_stored integer NOT NULL DEFAULT 0
);

-- Locks of 2 s, so that the messages of a killed worker are available again soon. Messages of orders.overnight wake no
-- worker: they are in no hurry, and a poll finds them.
INSERT INTO messages.topic (topic, max_attempts, lock_duration, backoff, lock_expired_delay, notify) VALUES
  ('file.read',        3, '2 s', '{"kind": "constant", "base": "200ms"}',                  '0', 'auto'),
  ('orders.created',   3, '2 s', '{"kind": "constant", "base": "200ms"}',                  '0', 'auto'),
  ('orders.overnight', 3, '2 s', '{"kind": "constant", "base": "200ms"}',                  '0', 'off'),
  ('mail.send',        3, '2 s', '{"kind": "exponential", "base": "400ms", "factor": 2}',  '0', 'auto'),
  ('invoice.render',   3, '2 s', '{"kind": "constant", "base": "200ms"}',                  '0', 'auto'),
  ('label.print',      1, '2 s', NULL,                                                     '0', 'auto');
