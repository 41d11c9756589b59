-- Batches: messages that belong together, what became of them, and the messages that tell of it.

-- A set of messages that grows while it is open. It is finished when it is closed and all its messages have ended; a
-- redrive opens that question again.
CREATE TABLE messages.batch (
  id           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name         messages.key_name,
  metadata     messages.json_object,
  created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  -- For people, and for tokens of the web server: what messages.actor said.
  created_by   text        NOT NULL,
  -- The role that logged in: it may read the batch.
  role         name        NOT NULL DEFAULT session_user,
  closed_at    timestamptz,
  cancelled_at timestamptz,
  finished_at  timestamptz
);
CREATE INDEX batch_finished ON messages.batch (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX batch_unfinished ON messages.batch (created_at) WHERE finished_at IS NULL;

-- The counts of a batch, in up to 64 rows, so that few messages that end at once need the same row: 64 ids in a row
-- belong to one shard (messages.batch_shard_of), then the next one has its turn. A message counts in its shard from its
-- publish on, as what it became. is_closed is that of the batch: a session
-- that brings live to 0 has the row, and need not lock the batch.
CREATE TABLE messages.batch_shard (
  batch_id       bigint   NOT NULL,
  shard          smallint NOT NULL,
  is_closed      boolean  NOT NULL,
  live           bigint   NOT NULL DEFAULT 0,
  succeeded      bigint   NOT NULL DEFAULT 0,
  dead           bigint   NOT NULL DEFAULT 0,
  cancelled      bigint   NOT NULL DEFAULT 0,
  first_ended_at timestamptz,
  last_ended_at  timestamptz,
  PRIMARY KEY (batch_id, shard)
)
WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- The changes of one statement to the counts of a batch. The trigger apply_batch_changes_at_commit adds them to the
-- shards and deletes them, in the same transaction; what it cannot add then is left to the tick.
CREATE TABLE messages.batch_change (
  id        bigint   GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  -- 0 = the trigger has left it to the tick.
  xid       xid8     NOT NULL DEFAULT pg_current_xact_id(),
  batch_id  bigint   NOT NULL,
  shard     smallint NOT NULL,
  live      bigint   NOT NULL DEFAULT 0,
  succeeded bigint   NOT NULL DEFAULT 0,
  dead      bigint   NOT NULL DEFAULT 0,
  cancelled bigint   NOT NULL DEFAULT 0,
  -- A message that died.
  dead_id   bigint
)
WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
CREATE INDEX batch_change_xid ON messages.batch_change (xid);
CREATE INDEX batch_change_batch ON messages.batch_change (batch_id);

-- The messages that a batch publishes: each once. due_at: when that was the case, or was last refused; message_id: the
-- message, published in the same transaction, unless its topic refused it: then error tells why, and the tick tries
-- again.
CREATE TABLE messages.batch_callback (
  batch_id   bigint   NOT NULL,
  event      text     NOT NULL CHECK (event IN ('finish', 'failure', 'success')),
  topic      messages.topic_name NOT NULL,
  due_at     timestamptz,
  -- The message that died first, of a failure.
  dead_id    bigint,
  message_id bigint,
  error      text,
  PRIMARY KEY (batch_id, event)
);
CREATE INDEX batch_callback_due ON messages.batch_callback (due_at) WHERE message_id IS NULL AND due_at IS NOT NULL;

-- This sequence tells whether there may be batches: 2 = yes. While there is none, no publish looks for one. As
-- messages.awaited_flag it is raised before the batch is committed, and lowered by the tick once none is left.
CREATE SEQUENCE messages.batch_flag AS smallint;
SELECT setval('messages.batch_flag', 1);
