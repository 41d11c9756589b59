-- How many messages a rate permits now, and when to ask again if none.
-- Called by: topic_slots (which holds the topic's lock). Locks: nothing.
-- GCRA, the generic cell rate algorithm (ITU-T I.371): free_at is when the bucket would be full again; each message moves it by 1 / rate,
-- and it may lie burst / rate ahead of the clock.
-- next_at waits for a quarter of the burst, so that a high rate does not cost a claim per message.
CREATE OR REPLACE FUNCTION messages.rate_slots(
  p_kind text, p_topic text, p_rate double precision, p_burst integer, p_now timestamptz, OUT slots integer, OUT next_at timestamptz
)
LANGUAGE plpgsql
STABLE
AS $$
DECLARE
  v_free_at timestamptz := (SELECT r.free_at FROM messages.rate AS r WHERE r.kind = p_kind AND r.topic = p_topic AND r.channel = '');
  v_ahead_s double precision := greatest(0, extract(epoch FROM v_free_at - p_now));
BEGIN
  -- A microsecond is the clock's grain: without it 0.1 s of ten messages a second would be 0.999999 of one.
  slots := floor(p_burst - coalesce(v_ahead_s, 0) * p_rate + 1e-6 * p_rate + 1e-9)::integer;
  next_at := p_now + make_interval(secs => greatest(0, v_ahead_s - (p_burst - greatest(1, p_burst / 4)) / p_rate));
END
$$;
