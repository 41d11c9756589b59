-- Put back the dead messages that fit all filters, the oldest first, at most p_limit: find_dead and redrive in one.
-- Called by: operators. Locks: as redrive. Filters: find_dead; all else, the result too: redrive.
CREATE OR REPLACE FUNCTION messages.redrive_where(
  p_topic       text             DEFAULT NULL,
  p_result      text             DEFAULT NULL,
  p_fingerprint text             DEFAULT NULL,
  p_since       timestamptz      DEFAULT NULL,
  p_until       timestamptz      DEFAULT NULL,
  p_error       text             DEFAULT NULL,
  p_limit       integer          DEFAULT 1000,
  p_rate        double precision DEFAULT NULL,
  p_delay       interval         DEFAULT '0',
  p_force       boolean          DEFAULT false
)
RETURNS TABLE (archived_id bigint, message_id bigint, outcome text)
LANGUAGE sql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
  SELECT b.archived_id, b.message_id, b.outcome
  FROM messages.put_back(
    ARRAY(SELECT f.id FROM messages.find_dead(p_topic, p_result, p_fingerprint, p_since, p_until, p_error, p_limit) AS f),
    NULL, p_rate, p_delay, p_force) AS b
$$;
