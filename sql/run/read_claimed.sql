-- Return claimed messages again, as claim returned them: for a worker whose other processes read what it claimed.
-- Called by: consume on Spark: its executors, and the process that extends its locks. p_ids, p_claim_ids: pairs, as every settle has them.
-- Locks: nothing, and no run is counted. Result: a row for each that is still under its claim; lost ones are missing. The times are
-- current, lock_duration_s is the topic's.
-- Plan shape: a row is looked up by its id, and only then its claim is compared, by an operator that permits NULL: a strict operator would
-- let the planner choose message_locked, which it takes for small, and read all of it for every id.
CREATE OR REPLACE FUNCTION messages.read_claimed(p_ids bigint[], p_claim_ids bigint[])
RETURNS SETOF messages.claimed
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
AS $$
DECLARE
  v_now timestamptz := messages.now();
BEGIN
  RETURN QUERY
  SELECT
    m.id, m.claim_id, m.topic::text, m.channel::text, m.key::text, m.priority::smallint, m.attempts::integer,
    nullif(coalesce(m.max_attempts, t.max_attempts, d.max_attempts), 0)::integer,
    m.payload::text, m.body::bytea, m.headers::text, m.state::text,
    extract(epoch FROM coalesce(t.lock_duration, d.lock_duration))::double precision,
    extract(epoch FROM coalesce(t.timeout, d.timeout))::double precision,
    extract(epoch FROM v_now - m.available_at)::double precision,
    extract(epoch FROM v_now - coalesce((m.history -> 0 ->> 'started')::timestamptz, m.locked_at))::double precision,
    (m.runs + coalesce(m.prefetched, false)::integer)::integer
  FROM unnest(p_ids, p_claim_ids) AS h (id, claim_id)
  JOIN messages.message AS m ON m.id = h.id AND m.claim_id IS NOT DISTINCT FROM h.claim_id
  CROSS JOIN messages.topic AS d
  LEFT JOIN messages.topic AS t ON t.topic = m.topic
  WHERE d.topic = '*' AND h.claim_id IS NOT NULL;
END
$$;
