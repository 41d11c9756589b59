-- Lock the next ready messages of one topic, channel and priority under a claim.
-- Called by: messages.claim, for each place of its walk. By nobody outside.
-- p_channel NULL = the messages without a channel. p_low: nothing that is ready lies below it.
-- The setting messages.bytes_left bounds the bytes of what is taken, but for the last message; it is lowered by them.
-- Messages whose attempts are used up (the limit was lowered since) are archived as failed without running: nothing is ever hidden.
-- Locks: the rows, skipping those that others hold; they stay locked as a claim after the commit. Result: what was locked, in its order.
-- Shape: first the row addresses, then an UPDATE by address, one by one in their order (ctid = ANY would sort them by address).
-- A join against a CTE would become a hash join over the whole table once its plan is generic.
CREATE OR REPLACE FUNCTION messages.take(
  p_claim_id bigint,
  p_worker   text,
  p_now      timestamptz,
  p_topic    text,
  p_channel  text,
  p_priority smallint,
  p_low      timestamptz,
  p_limit    integer,
  p_lock_for interval
)
RETURNS SETOF messages.claimed
LANGUAGE plpgsql
AS $$
DECLARE
  v_max_attempts integer;
  v_lock_for     interval;
  v_run_timeout  interval;
  v_rows         tid[];
  v_over         bigint[];
  v_bytes        bigint := current_setting('messages.bytes_left')::bigint;
  v_took_bytes   bigint;
BEGIN
  SELECT nullif(coalesce(t.max_attempts, d.max_attempts), 0),
         coalesce(p_lock_for, t.lock_for, d.lock_for),
         coalesce(t.run_timeout, d.run_timeout)
  INTO v_max_attempts, v_lock_for, v_run_timeout
  FROM messages.topic AS d
  LEFT JOIN messages.topic AS t ON t.topic = p_topic
  WHERE d.topic = '*';

  -- Two statements, not one with OR: each reads its own index in order.
  IF p_channel IS NULL THEN
    SELECT array_agg(r.ctid) FILTER (WHERE NOT r.over), array_agg(r.id) FILTER (WHERE r.over), sum(r.bytes) FILTER (WHERE NOT r.over)
    INTO v_rows, v_over, v_took_bytes
    FROM (
      SELECT n.ctid, n.id, n.over, n.bytes, sum(n.bytes) OVER (ORDER BY n.available_at, n.id) - n.bytes AS bytes_before
      FROM (
        SELECT m.ctid, m.id, m.available_at,
               coalesce(pg_column_size(m.payload), 0) + coalesce(octet_length(m.body), 0) AS bytes,
               m.attempts >= coalesce(nullif(coalesce(m.max_attempts, v_max_attempts), 0), 2147483647) AS over
        FROM messages.message AS m
        WHERE m.topic = p_topic AND m.priority = p_priority AND m.claim_id IS NULL AND m.channel IS NULL
          AND m.available_at >= p_low AND m.available_at <= p_now
        ORDER BY m.available_at, m.id
        LIMIT p_limit
        FOR UPDATE SKIP LOCKED
      ) AS n
    ) AS r
    WHERE r.bytes_before < v_bytes;
  ELSE
    SELECT array_agg(r.ctid) FILTER (WHERE NOT r.over), array_agg(r.id) FILTER (WHERE r.over), sum(r.bytes) FILTER (WHERE NOT r.over)
    INTO v_rows, v_over, v_took_bytes
    FROM (
      SELECT n.ctid, n.id, n.over, n.bytes, sum(n.bytes) OVER (ORDER BY n.available_at, n.id) - n.bytes AS bytes_before
      FROM (
        SELECT m.ctid, m.id, m.available_at,
               coalesce(pg_column_size(m.payload), 0) + coalesce(octet_length(m.body), 0) AS bytes,
               m.attempts >= coalesce(nullif(coalesce(m.max_attempts, v_max_attempts), 0), 2147483647) AS over
        FROM messages.message AS m
        WHERE m.topic = p_topic AND m.channel = p_channel AND m.priority = p_priority AND m.claim_id IS NULL AND m.channel IS NOT NULL
          AND m.available_at <= p_now
        ORDER BY m.available_at, m.id
        LIMIT p_limit
        FOR UPDATE SKIP LOCKED
      ) AS n
    ) AS r
    WHERE r.bytes_before < v_bytes;
  END IF;

  PERFORM set_config('messages.bytes_left', (v_bytes - coalesce(v_took_bytes, 0))::text, true);

  -- The directory of places that low_water marks are kept for. Under a try-lock: an INSERT of the same place would wait for the other
  -- claim to commit, and two claims in opposite order for each other. Who does not get it leaves the entry to a later claim.
  IF v_rows IS NOT NULL AND p_channel IS NULL
     AND NOT EXISTS (SELECT FROM messages.low_water AS w WHERE w.topic = p_topic AND w.priority = p_priority)
     AND pg_try_advisory_xact_lock(hashtextextended('messages.low_water', 0)) THEN
    INSERT INTO messages.low_water (topic, priority) VALUES (p_topic, p_priority) ON CONFLICT DO NOTHING;
  END IF;

  IF v_over IS NOT NULL THEN
    PERFORM messages.archive(
      v_over, array_fill(NULL::bigint, ARRAY[cardinality(v_over)]), 'failed',
      array_fill('max_attempts: all attempts were used up before this claim'::text, ARRAY[cardinality(v_over)]), NULL, p_worker, true);
  END IF;

  RETURN QUERY
  UPDATE messages.message AS m
  SET claim_id = p_claim_id, locked_by = p_worker, locked_at = p_now, lock_expires_at = p_now + v_lock_for, attempts = m.attempts + 1
  FROM unnest(v_rows) AS r (ctid)
  WHERE m.ctid = r.ctid
  RETURNING
    m.id, m.claim_id, m.topic, m.channel, m.key, m.priority, m.attempts,
    nullif(coalesce(m.max_attempts, v_max_attempts), 0),
    m.payload::text, m.body, m.headers::text, m.state::text,
    extract(epoch FROM v_lock_for)::double precision,
    extract(epoch FROM v_run_timeout)::double precision,
    extract(epoch FROM p_now - m.available_at)::double precision;
END
$$;
