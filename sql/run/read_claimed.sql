-- Returns messages that a worker holds once more, in the form in which `claim` returned them: for a worker that lets
-- other programs read what it claimed.
--
-- Arguments: pairs of ids and claim ids, as for every settle.
-- Result: a row for each message that is still under its claim, with the columns of `claim`. Messages whose lock was
-- lost are missing. The times are relative to now, and `lock_duration_s` is the topic's, whatever duration the claim
-- asked for.
-- Errors: none.
-- Locks: none, and no run is counted.
-- Repeat: it only reads.
-- Called by: consume on Spark: its executors, and the process that extends its locks.
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
    extract(epoch FROM coalesce(m.timeout, t.timeout, d.timeout))::double precision,
    extract(epoch FROM v_now - m.available_at)::double precision,
    extract(epoch FROM v_now - coalesce((m.history -> 0 ->> 'started')::timestamptz, m.locked_at))::double precision,
    (m.runs + coalesce(m.prefetched, false)::integer)::integer, m.batch_id
  FROM unnest(p_ids, p_claim_ids) AS h (id, claim_id)
  JOIN messages.message AS m ON m.id = ANY (ARRAY[h.id]) AND (m.claim_id = h.claim_id) IS TRUE
  JOIN messages.inherited_policy AS d ON d.topic = messages.inherits_from(m.topic)
  LEFT JOIN messages.topic AS t ON t.topic = m.topic;
END
$$;
