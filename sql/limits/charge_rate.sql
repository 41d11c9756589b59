-- Charge a rate for the messages that a claim took.
-- Called by: claim, under the lock that topic_slots took. Locks: the row. A rollback undoes the charge.
CREATE OR REPLACE FUNCTION messages.charge_rate(
  p_kind text, p_topic text, p_rate double precision, p_count integer, p_now timestamptz
)
RETURNS void
LANGUAGE sql
AS $$
  INSERT INTO messages.rate AS r (kind, topic, free_at)
  VALUES (p_kind, p_topic, p_now + make_interval(secs => p_count / p_rate))
  ON CONFLICT (kind, topic, channel) DO UPDATE
  SET free_at = greatest(r.free_at, p_now) + make_interval(secs => p_count / p_rate)
$$;
