-- The breakers of topics: they stop claims of a topic whose attempts fail.

-- The state of the breaker of a topic and what it has counted since window_began_at. Open: nothing is claimed before
-- probe_at, and then only some messages at once, to see whether attempts succeed again.
CREATE TABLE messages.breaker (
  topic           text        COLLATE "C" PRIMARY KEY,
  position        text        NOT NULL DEFAULT 'closed' CHECK (position IN ('closed', 'open')),
  window_began_at timestamptz NOT NULL DEFAULT '-infinity',
  succeeded       bigint      NOT NULL DEFAULT 0,
  failed          bigint      NOT NULL DEFAULT 0,
  changed_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  probe_at        timestamptz,
  reason             text,
  CHECK ((position = 'open') = (probe_at IS NOT NULL))
) WITH (fillfactor = 50);

-- Ended attempts that no breaker has counted yet: settles only add rows, so that none waits for another.
CREATE TABLE messages.breaker_count (
  topic     text   COLLATE "C" NOT NULL,
  succeeded bigint NOT NULL,
  failed    bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
-- It has no key, and a publication may name it: see message_archive.
ALTER TABLE messages.breaker_count REPLICA IDENTITY FULL;
CREATE INDEX breaker_count_topic ON messages.breaker_count (topic);
