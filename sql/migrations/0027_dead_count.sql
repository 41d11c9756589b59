-- How many messages ever died, by topic and result: a counter that only rises, whatever becomes of the messages and of their alerts.
-- Who archives dead messages only adds rows, so that none waits for another; the tick folds them (messages.fold_dead_counts). The sum counts.
CREATE TABLE messages.dead_count (
  topic  text   COLLATE "C" NOT NULL,
  result text   NOT NULL,
  count  bigint NOT NULL CHECK (count > 0)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX dead_count_topic ON messages.dead_count (topic, result);

-- It has to know where the breaker stood before.
-- squawk-ignore ban-drop-function
DROP FUNCTION IF EXISTS messages.tell_breaker(messages.breaker);
